"""The endpoints of keys and of the audit."""

import re
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.access import Role
from penstock.backends.audit.entry import Action, Flaw, Head
from penstock.backends.terminal.options import expires_us
from penstock.backends.terminal.output import facts, time_of
from penstock.core.endpoint import (
    Caller,
    Endpoint,
    ListRequest,
    Page,
    Request,
    decode_cursor,
    decode_number,
    encode_cursor,
    page_of,
)
from penstock.core.errors import InvalidInput
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake


class GrantAnswer(msgspec.Struct):
    """The tenant and role of a request's key. On the lake's machine no key is needed."""

    tenant: str
    actor: str
    admin: bool


class KeyAnswer(msgspec.Struct, kw_only=True):
    """A key without its secret."""

    id: str
    tenant: str
    role: str
    note: str
    created_at: str
    revoked_at: str | None
    expires_at: str | None


class CreatedKey(KeyAnswer, kw_only=True):
    """A new key with its secret, which is shown only here."""

    secret: str


class KeysAnswer(Page):
    keys: list[KeyAnswer]


class KeyRevoked(msgspec.Struct):
    revoked: str


_EXPIRES = Meta(
    description="Expiry in microseconds since 1970; by default never.",
    extra={
        "flag": "--expires",
        "metavar": "TIME",
        "parser": expires_us,
        "help": "Expiry: an age such as 90d, or a time; by default never.",
    },
)
_ID = Meta(description="From `penstock keys list`.", extra={"metavar": "ID"})
_OLD_UNTIL = Meta(
    description="Until when the old key works, in microseconds since 1970; by default a day.",
    extra={
        "help": "How long the old key still works; by default 24h.",
        "flag": "--old-works",
        "metavar": "TIME",
        "parser": partial(expires_us, what="--old-works"),
    },
)


class GrantRequest(Request):
    pass


class CreateKey(Request):
    """A new key of the caller's tenant."""

    role: Annotated[Role, Meta(description="The role; admin allows everything.")]
    note: Annotated[str, Meta(description="A note: who has it, and for what.")] = ""
    expires_at: Annotated[int, _EXPIRES] | None = None


class KeysRequest(ListRequest):
    """The keys of the tenant; on the lake's machine, of all tenants."""


class RevokeKey(Request):
    id: Annotated[str, _ID]


class RotateKey(Request):
    id: Annotated[str, _ID]
    old_until: Annotated[int, _OLD_UNTIL] | None = None


def _create(lake: Lake, caller: Caller, question: CreateKey) -> CreatedKey:
    from penstock.access.keys import create_key

    key, secret = create_key(
        lake.database,
        question.role,
        caller.tenant,
        question.note,
        question.expires_at,
        maker_expires_at=caller.expires_at,
        by=caller.actor,
    )
    return msgspec.convert(facts(key) | {"secret": secret}, CreatedKey)


def _list_keys(lake: Lake, caller: Caller, request: KeysRequest) -> KeysAnswer:
    from penstock.access.keys import list_keys

    keys = list_keys(lake.database, caller.own_tenant)
    page, after = page_of(keys, request, lambda key: key.id)
    return KeysAnswer([msgspec.convert(facts(key), KeyAnswer) for key in page], next=after)


def _revoke(lake: Lake, caller: Caller, question: RevokeKey) -> KeyRevoked:
    from penstock.access.keys import revoke_key

    revoke_key(lake.database, question.id, caller.own_tenant, by=caller.actor)
    return KeyRevoked(question.id)


def _rotate(lake: Lake, caller: Caller, question: RotateKey) -> CreatedKey:
    from penstock.access.keys import rotate_key

    until = expires_us("24h") if question.old_until is None else question.old_until
    key, secret = rotate_key(
        lake.database,
        question.id,
        until,
        caller.own_tenant,
        maker_expires_at=caller.expires_at,
        by=caller.actor,
    )
    return msgspec.convert(facts(key) | {"secret": secret}, CreatedKey)


def _show_grant(_lake: Lake, caller: Caller, _question: GrantRequest) -> GrantAnswer:
    return GrantAnswer(caller.tenant, caller.actor, caller.is_admin)


SHOW_GRANT = Endpoint(
    "GET /v1/keys/own",
    _show_grant,
    ("ingest", "read", "serve", "train", "promote"),
    "The tenant and role of the request's key",
)

CREATE_KEY = Endpoint("POST /v1/keys", _create, (), "Create a key of the tenant")
LIST_KEYS = Endpoint(
    "GET /v1/keys", _list_keys, (), "All keys of the tenant, without their secrets"
)
REVOKE_KEY = Endpoint("POST /v1/keys/{id}/revoke", _revoke, (), "Revoke a key of the tenant")

ROTATE_KEY = Endpoint(
    "POST /v1/keys/{id}/rotate",
    _rotate,
    (),
    "Replace a key of the tenant, which still works for a while",
)


# The audit

_ENTRIES = 100
_HEAD = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})", re.ASCII)


class EntryAnswer(msgspec.Struct, kw_only=True):
    """An entry of the audit. Its hash is the SHA-256 of all other fields as JSON with sorted keys
    and no spaces, with `at` in microseconds since 1970 and `facts` as text."""

    tenant: str
    number: int
    at: str
    at_us: int
    actor: str
    action: str
    subject: str
    facts: str
    previous_hash: str
    hash: str


class EntriesAnswer(Page):
    entries: list[EntryAnswer]


class ChainAnswer(msgspec.Struct):
    """The length of a tenant's chain, and the hash of its newest entry. `flaw` is the first altered
    entry; `signed`, whether a key signs the chain."""

    tenant: str
    number: int
    hash: str
    flaw: Flaw | None
    signed: bool


class ChainsAnswer(msgspec.Struct):
    chains: list[ChainAnswer]


class EntriesRequest(Request):
    """The newest entries first. On the lake's machine, entries of all tenants, and of the service
    itself with an empty tenant."""

    action: Action | None = None
    actor: str | None = None
    subject: str | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = _ENTRIES


class VerifyRequest(Request):
    """`head` is NUMBER:HASH as noted earlier. On the lake's machine `tenant` says whose chain it
    is."""

    head: str | None = None


def _list_entries(lake: Lake, caller: Caller, request: EntriesRequest) -> EntriesAnswer:
    from penstock.backends.audit.chain import entries_of

    before: tuple[str, int] | None = None
    if request.cursor is not None:
        number, of_tenant = decode_cursor(request.cursor, 2)
        before = (of_tenant, decode_number(number))
    entries = entries_of(
        lake.database,
        caller.own_tenant,
        before=before,
        action=request.action,
        actor=request.actor,
        subject=request.subject,
        limit=request.limit + 1,
    )
    shown, last = entries[: request.limit], entries[request.limit :]
    after = encode_cursor(shown[-1].number, shown[-1].tenant) if last else None
    answers = [
        EntryAnswer(**row._asdict() | {"at": time_of(row.at).isoformat(), "at_us": row.at})
        for row in shown
    ]
    return EntriesAnswer(answers, next=after)


def _verify(lake: Lake, caller: Caller, request: VerifyRequest) -> ChainsAnswer:
    from penstock.backends.audit.chain import check_audit

    kept: Head | None = None
    if request.head is not None:
        match = _HEAD.fullmatch(request.head)
        if match is None:
            why = "it must be NUMBER:HASH, as `penstock audit verify` shows it"
            raise InvalidInput(what=f"The head {request.head[:100]!r}", why=why)
        kept = Head(int(match[1]), match[2])
    tenant = None if caller.is_local and kept is None else caller.tenant
    checked = check_audit(lake.database, tenant, kept)
    signed = lake.database.signs
    return ChainsAnswer(
        [ChainAnswer(name, **vars(head), flaw=flaw, signed=signed) for name, head, flaw in checked]
    )


LIST_ENTRIES = Endpoint("GET /v1/audit", _list_entries, (), "Who did what in the tenant")
VERIFY_AUDIT = Endpoint(
    "GET /v1/audit/verify", _verify, (), "Verify that the audit was not altered"
)

ENDPOINTS: Endpoints = [
    SHOW_GRANT,
    CREATE_KEY,
    LIST_KEYS,
    REVOKE_KEY,
    ROTATE_KEY,
    LIST_ENTRIES,
    VERIFY_AUDIT,
]
