"""The room of importers."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock_jobs.importers",
    summaries={"Start here": {"import": "Import sessions that agents keep, or events from files."}},
    commands={"import": "penstock_jobs.importers.cli:import_"},
    tables=items("penstock_jobs.importers.progress"),
    erasure=parts({"imported": "penstock_jobs.importers.progress:PART"}),
)
