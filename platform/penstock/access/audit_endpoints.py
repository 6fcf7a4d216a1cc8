"""What can be asked of the audit."""

import re
from typing import Annotated

import msgspec

from penstock.backends.audit.entry import Action, AuditEntry, Head
from penstock.backends.terminal.output import time_of
from penstock.core.endpoint import (
    Caller,
    Endpoint,
    Page,
    Request,
    decode_cursor,
    decode_number,
    encode_cursor,
)
from penstock.core.errors import InvalidInput
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake

_ENTRIES = 100
_HEAD = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})", re.ASCII)


class EntryAnswer(msgspec.Struct, kw_only=True):
    """An entry. Its hash is SHA-256 of all other fields, `at` in microseconds since 1970 and
    `facts` as text, as JSON with sorted keys and no spaces."""

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


class ChainAnswer(msgspec.Struct, kw_only=True):
    """How long a tenant's chain is, and the hash of its newest entry. `flaw` is the first entry
    that is not as it was written, and `why`."""

    tenant: str
    number: int
    hash: str
    flaw: int | None = None
    why: str | None = None


class ChainsAnswer(msgspec.Struct):
    chains: list[ChainAnswer]


class EntriesRequest(Request):
    """The newest entries first. Beside the caller's own tenant, whoever is at the lake sees those
    of all, and of the service itself, whose tenant is empty."""

    action: Action | None = None
    actor: str | None = None
    subject: str | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = _ENTRIES


class VerifyRequest(Request):
    """`head` is NUMBER:HASH, as it was noted earlier; `tenant` whose chain that is, at the lake."""

    head: str | None = None


def _list(lake: Lake, caller: Caller, request: EntriesRequest) -> EntriesAnswer:
    from penstock.backends.audit.chain import entries_of

    before: tuple[str, int] | None = None
    if request.cursor is not None:
        number, of_tenant = decode_cursor(request.cursor, 2)
        before = (of_tenant, decode_number(number))
    tenant = None if caller.is_local else caller.tenant
    entries = entries_of(
        lake.database,
        tenant,
        before=before,
        action=request.action,
        actor=request.actor,
        subject=request.subject,
        limit=request.limit + 1,
    )
    shown, last = entries[: request.limit], entries[request.limit :]
    after = encode_cursor(shown[-1].number, shown[-1].tenant) if last else None
    return EntriesAnswer([_answer(entry) for entry in shown], next=after)


def _answer(entry: AuditEntry) -> EntryAnswer:
    fields = msgspec.to_builtins(entry)
    return EntryAnswer(**fields | {"at": time_of(entry.at).isoformat(), "at_us": entry.at})


def _verify(lake: Lake, caller: Caller, request: VerifyRequest) -> ChainsAnswer:
    from penstock.backends.audit.chain import flaws_of

    kept: Head | None = None
    if request.head is not None:
        match = _HEAD.fullmatch(request.head)
        if match is None:
            why = "it is NUMBER:HASH, as `penstock audit verify` shows it"
            raise InvalidInput(what=f"The head {request.head[:100]!r}", why=why)
        kept = Head(int(match[1]), match[2])
    tenant = None if caller.is_local and kept is None else caller.tenant
    heads, flaws = flaws_of(lake.database, tenant, kept)
    by_tenant = {flaw.tenant: flaw for flaw in flaws}
    chains = []
    for name, head in heads:
        flaw = by_tenant.get(name)
        chain = ChainAnswer(tenant=name, number=head.number, hash=head.hash)
        chain.flaw, chain.why = (flaw.number, flaw.why) if flaw else (None, None)
        chains.append(chain)
    return ChainsAnswer(chains)


LIST_ENTRIES = Endpoint("GET /v1/audit", _list, (), "Who did what, of the own tenant")
VERIFY_AUDIT = Endpoint(
    "GET /v1/audit/verify", _verify, (), "Whether the audit is as it was written"
)

ENDPOINTS: Endpoints = [LIST_ENTRIES, VERIFY_AUDIT]
