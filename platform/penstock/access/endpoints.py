"""What can be asked of keys."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.access import Role
from penstock.backends.terminal.options import expires_us
from penstock.backends.terminal.output import facts
from penstock.core.endpoint import Caller, Endpoint, ListRequest, Page, Request, page_of
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake


class GrantAnswer(msgspec.Struct):
    """What the key of a request is. On the machine of a lake nobody needs one."""

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
    """The only time that the secret is told."""

    secret: str


class KeysAnswer(Page):
    keys: list[KeyAnswer]


class KeyRevoked(msgspec.Struct):
    revoked: str


_EXPIRES = Meta(
    description="In microseconds since 1970; never without it.",
    extra={
        "flag": "--expires",
        "metavar": "TIME",
        "parser": expires_us,
        "help": "When: 90d from now, or a time; never without it.",
    },
)
_ID = Meta(description="From `penstock keys list`.", extra={"metavar": "ID"})
_OLD_UNTIL = Meta(
    description="Until when the old key works, in microseconds since 1970; a day without it.",
    extra={
        "help": "How long the old key still works: 24h without it.",
        "flag": "--old-works",
        "metavar": "TIME",
        "parser": partial(expires_us, what="--old-works"),
    },
)


class GrantRequest(Request):
    """Of the key that asks."""


class CreateKey(Request):
    """A key of the caller's tenant."""

    role: Annotated[Role, Meta(description="What the key allows; admin allows all.")]
    note: Annotated[str, Meta(description="Who has it, and what for.")] = ""
    expires_at: Annotated[int, _EXPIRES] | None = None


class KeysRequest(ListRequest):
    """All of the tenant; on the machine of the lake, those of all."""


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


def _list(lake: Lake, caller: Caller, request: KeysRequest) -> KeysAnswer:
    from penstock.access.keys import list_keys

    keys = list_keys(lake.database, None if caller.is_local else caller.tenant)
    page, after = page_of(keys, request, lambda key: key.id)
    return KeysAnswer([msgspec.convert(facts(key), KeyAnswer) for key in page], next=after)


def _revoke(lake: Lake, caller: Caller, question: RevokeKey) -> KeyRevoked:
    from penstock.access.keys import revoke_key

    owner = None if caller.is_local else caller.tenant
    revoke_key(lake.database, question.id, owner, by=caller.actor)
    return KeyRevoked(question.id)


def _rotate(lake: Lake, caller: Caller, question: RotateKey) -> CreatedKey:
    from penstock.access.keys import rotate_key

    owner = None if caller.is_local else caller.tenant
    until = expires_us("24h") if question.old_until is None else question.old_until
    key, secret = rotate_key(
        lake.database,
        question.id,
        until,
        owner,
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
    "What the key of the request is",
)

CREATE_KEY = Endpoint("POST /v1/keys", _create, (), "Make a key of the own tenant")
LIST_KEYS = Endpoint("GET /v1/keys", _list, (), "All keys of the own tenant, without their secrets")
REVOKE_KEY = Endpoint("POST /v1/keys/{id}/revoke", _revoke, (), "Revoke a key of the own tenant")

ROTATE_KEY = Endpoint(
    "POST /v1/keys/{id}/rotate",
    _rotate,
    (),
    "Make a key in place of one of the own tenant, which works for a while yet",
)

ENDPOINTS: Endpoints = [SHOW_GRANT, CREATE_KEY, LIST_KEYS, REVOKE_KEY, ROTATE_KEY]
