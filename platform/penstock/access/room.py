"""What access and privacy bring."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.access import cli
    from penstock.access.cli import audit_app, login, logout, quotas_app
    from penstock.access.privacy import redaction_cli
    from penstock.access.privacy.cli import erase, retention_app

    return {
        "erase": erase,
        "retention": retention_app,
        "redaction": redaction_cli.app,
        "keys": cli.app,
        "audit": audit_app,
        "login": login,
        "logout": logout,
        "quotas": quotas_app,
    }


def tables() -> list[ModuleType]:
    from penstock.access import tables
    from penstock.access.privacy import tables as privacy_tables

    return [tables, privacy_tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.access import AccessSettings

    return [AccessSettings]


def endpoints() -> Endpoints:
    from penstock.access import audit_endpoints, endpoints
    from penstock.access.privacy import endpoints as privacy_endpoints

    return [*endpoints.ENDPOINTS, *audit_endpoints.ENDPOINTS, *privacy_endpoints.ENDPOINTS]


def upkeep() -> Parts:
    from penstock.access.privacy.retention import keep_to_rules

    return {"retention": keep_to_rules}


def erasure() -> Parts:
    from penstock.access.privacy.lake_content import EVENTS, FILES, ICEBERG, RECORDS

    return {"events": EVENTS, "iceberg": ICEBERG, "records": RECORDS, "files": FILES}


def retention() -> Parts:
    from penstock.access.privacy.aged_sessions import EVENTS, NO_TRAIN
    from penstock.access.privacy.retention import ERASURES

    return {"events": EVENTS, "no_train": NO_TRAIN, "erasures": ERASURES}


def withheld() -> list[Any]:
    from penstock.access.privacy.tombstones import find_withheld

    return [find_withheld]


ROOM = Room(
    package="penstock.access",
    summaries={
        "erase": "Erase a user, session, project or tenant, with all that was made of it.",
        "retention": "How long what is kept.",
        "redaction": "What is masked in events before they are kept.",
        "keys": "Keys for the HTTP service.",
        "audit": "Who did what, and whether anybody changed that.",
        "login": "Keep the address of a service and a key for it: commands ask it from now on.",
        "logout": "Forget the service of `penstock login`, and its key.",
        "quotas": "What each tenant may use.",
    },
    commands=commands,
    tables=tables,
    settings=settings,
    endpoints=endpoints,
    upkeep=upkeep,
    erasure=erasure,
    retention=retention,
    withheld=withheld,
)
