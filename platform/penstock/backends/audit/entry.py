"""Entries of the audit, and chains of entries.

In a chain each entry holds the hash of the one before, so an altered entry breaks all that follow:
the audit, the history of a channel, the journal of a checkpoint."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgspec

Action = Literal[
    "ingest", "read", "export", "label", "shard", "checkpoint", "result",
    "approve", "promote", "rollback", "canary", "release", "policy",
    "drop", "erase", "retention", "replay", "consent", "prove",
    "key", "revoke", "rotate", "quota", "redaction", "webhook", "settings", "snapshot",
    "sign_in", "sign_out",
]  # fmt: skip

#: The tenant of entries about the whole service.
NO_TENANT = ""
#: The actor where nobody is named: whoever runs the machine.
OPERATOR = "operator"
_SUBJECT_CHARS_MAX = 512
_ACTOR_CHARS_MAX = 128


@dataclass(frozen=True, kw_only=True)
class Deed:
    """An action of somebody, for the audit. Entries are never erased, so names and texts of people,
    sessions and projects do not belong here: use `person_digest`."""

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


class Head(NamedTuple):
    number: int
    hash: str


class Flaw(NamedTuple):
    """The first entry of a tenant's chain that is not as it was written."""

    tenant: str
    number: int
    why: str


def entry_of(deed: Deed, before: Head, at: int) -> AuditEntry:
    entry = AuditEntry(
        tenant=deed.tenant,
        number=before.number + 1,
        at=at,
        actor=_storable(deed.actor)[:_ACTOR_CHARS_MAX],
        action=deed.action,
        subject=_storable(deed.subject)[:_SUBJECT_CHARS_MAX],
        facts=msgspec.json.encode(dict(deed.facts), order="sorted").decode(),
        previous_hash=before.hash,
    )
    return replace(entry, hash=hash_of(asdict(entry)))


def _storable(text: str) -> str:
    """Databases take neither NUL nor half a surrogate pair."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def person_digest(tenant: str, kind: str, name: str) -> str:
    """Make the digest that stands for a session, user or project. Whoever knows the name can find
    its entries."""
    text = f"{tenant}\0{kind}\0{name}".encode(errors="surrogatepass")
    return f"{kind} {hashlib.sha256(text).hexdigest()[:32]}"


def first_flaw(
    tenant: str, entries: Iterable[AuditEntry], head: Head, kept: Head | None, cut: Head
) -> Flaw | None:
    """Check a chain. `head` is the newest entry by the row of the chain, `cut` the last one that
    retention removed; `kept` is one that somebody noted earlier."""
    chain = ChainReader(*cut)
    if kept is not None and kept.number == cut.number and kept.hash != cut.hash:
        return Flaw(tenant, cut.number, "it is another one than when its hash was noted")
    for entry in entries:
        number = chain.number + 1
        if why := chain.follow(entry.number, asdict(entry)):
            return Flaw(tenant, number, why)
        if kept is not None and kept.number == number and kept.hash != entry.hash:
            return Flaw(tenant, number, "it is another one than when its hash was noted")
    if head != (chain.number, chain.hash):
        return Flaw(tenant, chain.number + 1, f"the chain itself ends with {head.number}")
    if kept is not None and kept.number > chain.number:
        why = f"the chain ends with {chain.number}, and {kept.number} was noted"
        return Flaw(tenant, chain.number + 1, why)
    return None


NO_HASH = "0" * 64


def hash_of(entry: Mapping[str, Any]) -> str:
    """SHA-256 of all fields but `hash`, as JSON with sorted keys and no spaces."""
    fields = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


@dataclass
class ChainReader:
    """The newest entry that was read, by its number and hash."""

    number: int = 0
    hash: str = NO_HASH
    at: int = 0

    def follow(self, number: int, entry: Mapping[str, Any]) -> str | None:
        """Go on to the next entry, or return why it is not as it was written."""
        if number != self.number + 1:
            return f"after {self.number} comes {number}"
        if entry["previous_hash"] != self.hash:
            return "it names another hash than the entry before it has"
        if entry["hash"] != hash_of(entry):
            return "its hash is not the hash of its content"
        if (at := entry.get("at", 0)) < self.at:
            return "it is older than the entry before it"
        self.number, self.hash, self.at = number, entry["hash"], at
        return None
