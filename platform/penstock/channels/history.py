"""The history of a channel, as it is told and proved: pure.

Each change holds the whole state of its channel after it, and the hash of the change before: who
alters one breaks all that follow.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import msgspec

Action = Literal["promote", "rollback", "canary", "release", "policy"]
#: What the first change of a channel has before it.
NO_HASH = "0" * 64


@dataclass(frozen=True, kw_only=True)
class Change:
    """A row of the history, column by column."""

    tenant: str
    channel: str
    #: 1, 2, 3 without a gap; 0 is a channel that nobody has used yet.
    version: int
    action: Action
    #: Which checkpoint it is at since then, if any, and the digest of it.
    checkpoint: str | None = None
    digest: str | None = None
    #: The one that served before the present one.
    previous: str | None = None
    canary: str | None = None
    canary_share: float | None = None
    pinned: bool = False
    #: The digest of its gate policy.
    policy: str | None = None
    #: What the gate said of this change.
    verdict: str | None = None
    #: It was made without a PASS, or though the channel was pinned.
    overridden: bool = False
    actor: str
    reason: str
    at: int
    previous_hash: str = NO_HASH
    hash: str = ""

    def sealed(self) -> "Change":
        """With its hash."""
        return replace(self, hash=hash_of(self))


@dataclass(frozen=True)
class Misfit:
    """The first version of a history that does not fit to those before it."""

    version: int
    why: str


def hash_of(change: Change) -> str:
    """Of all columns but itself, as JSON with sorted keys."""
    facts = asdict(change)
    del facts["hash"]
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def first_misfit(changes: Iterable[Change], head: tuple[int, str] | None = None) -> Misfit | None:
    """Whether a channel's history, from its first change on, is as it was written. `head` is the
    version and the hash that the channel itself has."""
    version, hash_before, at = 0, NO_HASH, 0
    for change in changes:
        if change.version != version + 1:
            return Misfit(version + 1, f"after {version} comes {change.version}")
        if change.previous_hash != hash_before:
            return Misfit(change.version, "it names another hash than the change before it has")
        if change.hash != hash_of(change):
            return Misfit(change.version, "what it says is not what its hash was taken of")
        if change.at < at:
            return Misfit(change.version, "it is older than the change before it")
        version, hash_before, at = change.version, change.hash, change.at
    if head is not None and head != (version, hash_before):
        return Misfit(version + 1, f"the channel itself is at version {head[0]}")
    return None


@dataclass(frozen=True)
class Step:
    """What a change did to the checkpoint that a channel is at."""

    action: str
    checkpoint: str | None


def served(steps: Iterable[Step]) -> set[str]:
    """Which checkpoints had all traffic of a channel at some time."""
    return {step.checkpoint for step in steps if step.checkpoint is not None}


def candidates_to_return_to(steps: Sequence[Step]) -> list[str]:
    """Where a channel may go back to, the best first: what served on it before, the latest first,
    but nothing that it was rolled back from and that was not promoted again since."""
    current = steps[-1].checkpoint if steps else None
    bad: set[str] = set()
    good: list[str] = []
    before: str | None = None
    for step in steps:
        if step.checkpoint == before or step.checkpoint is None:
            continue
        if step.action == "rollback" and before is not None:
            bad.add(before)
        bad.discard(step.checkpoint)
        if step.checkpoint in good:
            good.remove(step.checkpoint)
        good.append(step.checkpoint)
        before = step.checkpoint
    return [one for one in reversed(good) if one != current and one not in bad]
