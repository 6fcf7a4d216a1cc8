"""PostgreSQL: the database that several processes share."""

from math import ceil
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event, exc

from penstock.backends.database import DatabaseLimits
from penstock.core.errors import ExtraMissing

#: Options of a transaction that sees one state, and of one that changes nothing.
ONE_STATE: dict[str, Any] = {"isolation_level": "REPEATABLE READ"}
READ_ONLY: dict[str, Any] = ONE_STATE | {"postgresql_readonly": True}

_LOCK_TIMEOUT, _CANCELED = "55P03", "57014"
#: An earlier error in the transaction was ignored.
_ABORTED_BEFORE = "25P02"
#: Tables or columns are missing, or may not be used.
_TABLES_UNFIT = frozenset({"42501", "42703", "42P01"})


def make_engine(url: sa.URL, limits: DatabaseLimits) -> Engine:
    """Make the engine. Raises ExtraMissing."""
    statement_ms = _milliseconds(limits.statement_seconds_max)
    timeouts = {
        "lock_timeout": _milliseconds(limits.lock_seconds_max),
        "statement_timeout": statement_ms,
        "idle_in_transaction_session_timeout": statement_ms,
    }
    arguments: dict[str, Any] = {
        "application_name": "penstock",
        "connect_timeout": ceil(limits.connect_seconds_max),
        "keepalives_idle": 10,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": statement_ms,
        "prepare_threshold": None,  # not every pooler passes prepared statements on
    }
    # The address wins, by single arguments, and by `options`, of which the later count.
    arguments = {name: value for name, value in arguments.items() if name not in url.query}
    options = [f"-c {name}={value}" for name, value in timeouts.items()]
    arguments["options"] = " ".join([*options, str(url.query.get("options", ""))]).strip()
    try:
        engine = sa.create_engine(url, connect_args=arguments, pool_pre_ping=True, **limits.pool())
    except ImportError as error:
        raise ExtraMissing(what="A metadata database in PostgreSQL", extra="postgres") from error
    event.listen(engine, "connect", _read_sums_as_integers)
    return engine


def _read_sums_as_integers(connection: Any, _entry: object) -> None:
    """Read NUMERIC as integers: sums of BIGINTs have that type, and no column does."""
    from psycopg.types.numeric import IntLoader

    connection.adapters.register_loader("numeric", IntLoader)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))  # zero would be for ever


def why_unusable(error: exc.DBAPIError, limits: DatabaseLimits) -> str | None:
    """Say what is wrong with the database; None if the statement is wrong."""
    state = getattr(error.orig, "sqlstate", None)
    if state == _LOCK_TIMEOUT:
        return f"another transaction held a lock for over {limits.lock_seconds_max:g} s"
    if state == _CANCELED:
        return f"a statement was stopped; it may take {limits.statement_seconds_max:g} s"
    outage = error.connection_invalidated or state in _TABLES_UNFIT
    if not outage and state != _ABORTED_BEFORE:
        while_connecting = error.statement is None and not isinstance(error, exc.IntegrityError)
        failed = isinstance(error, exc.OperationalError | exc.InternalError)
        outage = while_connecting or failed or type(error) is exc.DatabaseError
    if not outage:
        return None
    # The server's message without the statement that it adds, or else the driver's.
    message = getattr(getattr(error.orig, "diag", None), "message_primary", None)
    return " ".join(str(message or error.orig).split())


def scrub(connection: Connection) -> None:
    connection.exec_driver_sql("VACUUM")
