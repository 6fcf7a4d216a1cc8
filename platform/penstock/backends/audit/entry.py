"""Entries of the audit, and of all chains: each holds the hash of the one before, so an altered
entry breaks all that follow."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Action = Literal[
    "ingest", "read", "export", "label", "shard", "checkpoint", "result",
    "approve", "promote", "rollback", "canary", "release", "policy",
    "drop", "erase", "retention", "replay", "consent", "prove",
    "key", "revoke", "rotate", "sign", "quota", "redaction", "webhook", "settings", "snapshot",
    "sign_in", "sign_out",
]  # fmt: skip

#: The tenant of entries about the whole service.
NO_TENANT = ""
#: The actor where nobody is named: whoever runs the machine.
OPERATOR = "operator"
_SUBJECT_CHARS_MAX = 512
_ACTOR_CHARS_MAX = 128


Facts = Mapping[str, str | int | None]


class Deed(msgspec.Struct, frozen=True):
    """An action of somebody, for the audit. Entries are never erased, so names and texts of people,
    sessions and projects do not belong here: use `person_digest`."""

    tenant: str
    actor: str
    action: Action
    subject: str = ""
    facts: Facts = msgspec.field(default_factory=dict)


def entry_of(deed: Deed) -> dict[str, Any]:
    return {
        "actor": _storable(deed.actor)[:_ACTOR_CHARS_MAX],
        "action": deed.action,
        "subject": _storable(deed.subject)[:_SUBJECT_CHARS_MAX],
        "facts": msgspec.json.encode(dict(deed.facts), order="sorted").decode(),
    }


def _storable(text: str) -> str:
    """Databases take neither NUL nor half a surrogate pair."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def person_digest(tenant: str, kind: str, name: str) -> str:
    """Make the digest that stands for a session, user or project. Whoever knows the name can find
    its entries."""
    text = f"{tenant}\0{kind}\0{name}".encode(errors="surrogatepass")
    return f"{kind} {hashlib.sha256(text).hexdigest()[:32]}"


# Chains

NO_HASH = "0" * 64


@dataclass(frozen=True)
class Head:
    """An entry of a chain. Its hash covers all entries up to it."""

    number: int = 0
    hash: str = NO_HASH


BEGINNING = Head()


class Flaw(msgspec.Struct, frozen=True):
    """The first entry of a chain that is not as it was written."""

    number: int
    why: str


def hash_of(entry: Mapping[str, Any]) -> str:
    """SHA-256 of all fields but `hash`, as JSON with sorted keys and no spaces."""
    fields = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def first_flaw(
    entries: Iterable[Mapping[str, Any]],
    head: Head,
    *,
    cut: Head = BEGINNING,
    noted: Head | None = None,
    numbered: str = "number",
) -> Flaw | None:
    """Check entries behind `cut`, the last one that was removed. `head` is the newest by the row of
    the chain, `noted` one that somebody noted earlier."""
    last, at = cut, 0
    another = "it is another one than when its hash was noted"
    if noted is not None and noted.number == cut.number and noted != cut:
        return Flaw(cut.number, another)
    for entry in entries:
        number = last.number + 1
        if entry[numbered] != number:
            return Flaw(number, f"after {last.number} comes {entry[numbered]}")
        if entry["previous_hash"] != last.hash:
            return Flaw(number, "it names another hash than the entry before it has")
        if entry["hash"] != hash_of(entry):
            return Flaw(number, "its hash is not the hash of its content")
        if entry["at"] < at:
            return Flaw(number, "it is older than the entry before it")
        last, at = Head(number, entry["hash"]), entry["at"]
        if noted is not None and noted.number == number and noted != last:
            return Flaw(number, another)
    if head != last:
        return Flaw(last.number + 1, f"the chain itself ends with {head.number}")
    if noted is not None and noted.number > last.number:
        why = f"the chain ends with {last.number}, and {noted.number} was noted"
        return Flaw(last.number + 1, why)
    return None


UNSIGNED = (
    "unsigned: whoever writes to the database could have altered it unseen. Name a key with"
    " PENSTOCK_SIGNING_KEY_FILE"
)
