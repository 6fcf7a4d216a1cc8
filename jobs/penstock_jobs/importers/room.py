"""The room of importers."""

from types import ModuleType

from penstock.core.room import Commands, Parts, Room


def commands() -> Commands:
    from penstock_jobs.importers.cli import import_

    return {"import": import_}


def tables() -> list[ModuleType]:
    from penstock_jobs.importers import progress

    return [progress]


def erasure() -> Parts:
    from penstock_jobs.importers.progress import PART

    return {"imported": PART}


ROOM = Room(
    package="penstock_jobs.importers",
    summaries={"import": "Import sessions that agents keep, or events from files."},
    commands=commands,
    tables=tables,
    erasure=erasure,
)
