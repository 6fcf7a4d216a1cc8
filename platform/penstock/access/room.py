"""The access room, privacy included."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.core.settings import RoomSettings


def commands() -> Commands:
    from penstock.access import cli
    from penstock.access.cli import audit_app, login, logout, quotas_app
    from penstock.access.privacy.cli import erase, redaction_app, retention_app

    return {
        "erase": erase,
        "retention": retention_app,
        "redaction": redaction_app,
        "keys": cli.app,
        "audit": audit_app,
        "login": login,
        "logout": logout,
        "quotas": quotas_app,
    }


def tables() -> list[ModuleType]:
    from penstock.access import tables

    return [tables]


def settings() -> "list[type[RoomSettings]]":
    from penstock.access import AccessSettings

    return [AccessSettings]


def endpoints() -> Endpoints:
    from penstock.access import endpoints
    from penstock.access.privacy import endpoints as privacy_endpoints

    return [*endpoints.ENDPOINTS, *privacy_endpoints.ENDPOINTS]


def upkeep() -> Parts:
    from penstock.access.privacy.retention import keep_to_rules

    return {"retention": keep_to_rules}


def erasure() -> Parts:
    from penstock.access.privacy.erasure import EVENTS, FILES, ICEBERG, RECORDS

    return {"events": EVENTS, "iceberg": ICEBERG, "records": RECORDS, "files": FILES}


def retention() -> Parts:
    from penstock.access.privacy.aged_sessions import EVENTS, NO_TRAIN
    from penstock.access.privacy.retention import AUDIT, ERASURES

    return {"events": EVENTS, "no_train": NO_TRAIN, "erasures": ERASURES, "audit": AUDIT}


def withheld() -> list[Any]:
    from penstock.access.privacy.tombstones import find_withheld

    return [find_withheld]


ROOM = Room(
    package="penstock.access",
    summaries={
        "erase": "Erase a user, session, project or tenant, with everything made from it.",
        "retention": "How long data are kept.",
        "redaction": "Masking of secrets in events before they are stored.",
        "keys": "Keys for the HTTP service.",
        "audit": "Who did what, and whether the record was altered.",
        "login": "Store the address of a service and a key for it.",
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
