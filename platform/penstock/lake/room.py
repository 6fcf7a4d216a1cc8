"""The room of the lake."""

from types import ModuleType
from typing import TYPE_CHECKING

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.lake.cli import backup, database_app, lake_app, query, restore, snapshots_app
    from penstock.lake.iceberg import cli

    return {
        "query": query,
        "snapshots": snapshots_app,
        "lake": lake_app,
        "db": database_app,
        "backup": backup,
        "restore": restore,
        "iceberg": cli.app,
    }


def tables() -> list[ModuleType]:
    from penstock.lake import tables
    from penstock.lake.iceberg import event_table

    return [tables, event_table]


def settings() -> "list[type[RoomSettings]]":
    from penstock.lake.settings import LakeSettings

    return [LakeSettings]


def endpoints() -> Endpoints:
    from penstock.lake import endpoints

    return endpoints.ENDPOINTS


def upkeep() -> Parts:
    from penstock.lake.iceberg.publication import publish_due
    from penstock.lake.upkeep.merges import compact
    from penstock.lake.upkeep.rounds import clean_up

    return {"compaction": compact, "collection": clean_up, "iceberg": publish_due}


ROOM = Room(
    package="penstock.lake",
    summaries={
        "query": "Query the lake with SQL.",
        "snapshots": "Name the lake as it is; `query --as-of NAME` reads the same rows for ever.",
        "lake": "The files of the lake.",
        "db": "The metadata database.",
        "backup": "Copy an embedded lake as it is now, while it is served.",
        "restore": "Restore a lake from a backup, into an empty data directory.",
        "iceberg": "Tables of Apache Iceberg over the lake.",
    },
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    upkeep=upkeep,
)
