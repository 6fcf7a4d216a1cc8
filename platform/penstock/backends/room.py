"""The room of outside systems: their settings and tables."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock.backends",
    tables=items(
        "penstock.backends.database.tables",
        "penstock.backends.audit.chain",
        "penstock.backends.audit.hash_chain",
    ),
    settings=items(
        "penstock.backends.http.address:HttpSettings",
        "penstock.backends.database:DatabaseSettings",
        "penstock.backends.eventlog.log:EventLogSettings",
        "penstock.backends.execution.executor:ExecutionSettings",
    ),
)
