"""An entry of the audit: one deed of one key or person, sealed by a hash that covers the entry
before it.

The hash takes no key. So a tenant can check what it was given with nothing but SHA-256, and no
gateway needs a secret to write. Whoever may write into the database could make a whole chain anew;
against that, heads are kept elsewhere: in the service's log, in proofs, wherever an operator puts
the answer of `penstock audit verify`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, NamedTuple

import msgspec

Action = Literal[
    "ingest", "read", "export", "label", "shard", "checkpoint", "result",
    "approve", "promote", "rollback", "canary", "release", "policy",
    "drop", "erase", "retention", "replay", "consent", "prove",
    "key", "revoke", "rotate", "quota", "redaction", "webhook", "settings", "snapshot",
    "sign_in", "sign_out",
]  # fmt: skip

#: The tenant of what concerns the whole service.
NO_TENANT = ""
#: The actor where nobody is named: whoever runs the machine.
OPERATOR = "operator"
NO_HASH = ""
#: Of a subject, in bytes; and of facts: the rest is not part of an entry.
_SUBJECT_CHARS_MAX = 512
_ACTOR_CHARS_MAX = 128


@dataclass(frozen=True, kw_only=True)
class Deed:
    """Somebody did something to something. Names of people, sessions and projects do not belong
    here, nor texts of theirs: what is appended is never erased. `person_digest` is for those."""

    tenant: str
    actor: str
    action: Action
    subject: str = ""
    facts: Mapping[str, str | int | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """One row of a tenant's chain. `at` is microseconds since 1970, `facts` a JSON object."""

    tenant: str
    number: int
    at: int
    actor: str
    action: str
    subject: str
    facts: str
    previous_hash: str
    hash: str = ""

    def sealed(self) -> "AuditEntry":
        return replace(self, hash=hash_of(self))


class Head(NamedTuple):
    """The newest entry of a chain, by its number and hash."""

    number: int
    hash: str


class Flaw(NamedTuple):
    """The first entry of a tenant's chain that is not as it was written."""

    tenant: str
    number: int
    why: str


def entry_of(deed: Deed, before: Head, at: int) -> AuditEntry:
    """The entry that follows on `before`."""
    return AuditEntry(
        tenant=deed.tenant,
        number=before.number + 1,
        at=at,
        actor=_storable(deed.actor)[:_ACTOR_CHARS_MAX],
        action=deed.action,
        subject=_storable(deed.subject)[:_SUBJECT_CHARS_MAX],
        facts=msgspec.json.encode(dict(deed.facts), order="sorted").decode(),
        previous_hash=before.hash,
    ).sealed()


def _storable(text: str) -> str:
    """Databases take neither NUL nor half a surrogate pair."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def hash_of(entry: AuditEntry) -> str:
    """SHA-256 of all columns but the hash itself, as JSON with sorted keys and no spaces."""
    columns = asdict(entry)
    del columns["hash"]
    return hashlib.sha256(msgspec.json.encode(columns, order="sorted")).hexdigest()


def person_digest(tenant: str, kind: str, name: str) -> str:
    """What stands for a session, user or project: who knows the name finds its entries, and no
    entry tells the name. A name that can be guessed can be looked for, too."""
    text = f"{tenant}\0{kind}\0{name}".encode(errors="surrogatepass")
    return f"{kind} {hashlib.sha256(text).hexdigest()[:32]}"


def first_flaw(
    tenant: str, entries: Iterable[AuditEntry], head: Head, kept: Head | None
) -> Flaw | None:
    """The first entry that is not as it was written. `head` is the newest by the chain's own row,
    `kept` one that somebody noted earlier."""
    before, at = Head(0, NO_HASH), 0
    for entry in entries:
        number = before.number + 1
        if entry.number != number:
            return Flaw(tenant, number, f"after {before.number} comes {entry.number}")
        if entry.previous_hash != before.hash:
            return Flaw(tenant, number, "it names another hash than the entry before it has")
        if entry.hash != hash_of(entry):
            return Flaw(tenant, number, "its hash is not the hash of its content")
        if entry.at < at:
            return Flaw(tenant, number, "it is older than the entry before it")
        if kept is not None and kept.number == number and kept.hash != entry.hash:
            return Flaw(tenant, number, "it is another one than when its hash was noted")
        before, at = Head(number, entry.hash), entry.at
    if head != before:
        return Flaw(tenant, before.number + 1, f"the chain itself ends with {head.number}")
    if kept is not None and kept.number > before.number:
        why = f"the chain ends with {before.number}, and {kept.number} was noted"
        return Flaw(tenant, before.number + 1, why)
    return None
