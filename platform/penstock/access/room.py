"""The access room, privacy included."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock.access",
    summaries={
        "Connect agents": {
            "login": "Store the address of a service and a key for it.",
            "logout": "Forget the service of `penstock login`, and its key.",
        },
        "Protect": {
            "erase": "Erase a user, session, project or tenant, with everything made from it.",
            "retention": "How long data are kept.",
            "redaction": "Masking of secrets in events before they are stored.",
            "keys": "Keys for the HTTP service.",
            "audit": "Who did what, and whether the record was altered.",
            "quotas": "What each tenant may use.",
        },
    },
    commands={
        "erase": "penstock.access.privacy.cli:erase",
        "retention": "penstock.access.privacy.cli:retention_app",
        "redaction": "penstock.access.privacy.cli:redaction_app",
        "keys": "penstock.access.cli:app",
        "audit": "penstock.access.cli:audit_app",
        "login": "penstock.access.cli:login",
        "logout": "penstock.access.cli:logout",
        "quotas": "penstock.access.cli:quotas_app",
    },
    tables=items("penstock.access.tables"),
    settings=items("penstock.access:AccessSettings"),
    endpoints=items(
        "penstock.access.endpoints:ENDPOINTS", "penstock.access.privacy.endpoints:ENDPOINTS"
    ),
    upkeep=parts({"retention": "penstock.access.privacy.retention:keep_to_rules"}),
    erasure=parts(
        {
            "events": "penstock.access.privacy.erasure:EVENTS",
            "iceberg": "penstock.access.privacy.erasure:ICEBERG",
            "records": "penstock.access.privacy.erasure:RECORDS",
            "files": "penstock.access.privacy.erasure:FILES",
        }
    ),
    retention=parts(
        {
            "events": "penstock.access.privacy.aged_sessions:EVENTS",
            "no_train": "penstock.access.privacy.aged_sessions:NO_TRAIN",
            "erasures": "penstock.access.privacy.retention:ERASURES",
            "audit": "penstock.access.privacy.retention:AUDIT",
        }
    ),
    withheld=items("penstock.access.privacy.tombstones:find_withheld"),
)
