"""The ingest room."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.ingest.cli import events_app, ledger, rejected_app

    return {"ledger": ledger, "rejected": rejected_app, "events": events_app}


def tables() -> list[ModuleType]:
    from penstock.ingest import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.ingest.settings import IngestSettings

    return [IngestSettings]


def endpoints() -> Endpoints:
    from penstock.ingest import endpoints

    return endpoints.ENDPOINTS


def upkeep() -> Parts:
    from penstock.ingest.rejected_lines import remove_old_lines

    return {"rejected": remove_old_lines}


def erasure() -> Parts:
    from penstock.ingest.erasure import LOG_PART, REJECTED_PART, SOURCES_PART

    return {"log": LOG_PART, "rejected": REJECTED_PART, "sources": SOURCES_PART}


def retention() -> Parts:
    from penstock.ingest.rejected_lines import AGED_LINES

    return {"rejected": AGED_LINES}


def checks() -> list[Any]:
    from penstock.ingest.partition_writer import find_truncated_log
    from penstock.ingest.rejected_lines import find_damage

    return [find_damage, find_truncated_log]


ROOM = Room(
    package="penstock.ingest",
    summaries={
        "ledger": "Show what arrived per source and hour, and what became of it.",
        "rejected": "Rejected lines: their reasons, and replaying them.",
        "events": "The format of events.",
    },
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    upkeep=upkeep,
    erasure=erasure,
    retention=retention,
    checks=checks,
)
