"""Channels and their changes, as the history keeps them and as everybody is told of them: pure.

A change holds the whole state of its channel after it, and the hash of the change before."""

import inspect
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from penstock.backends.audit.entry import NO_HASH, ChainReader, hash_of
from penstock.core.errors import PenstockError

Action = Literal["promote", "rollback", "canary", "release", "policy"]
_SHORT_CHARS = len("sha256:") + 12


@dataclass(frozen=True, kw_only=True)
class ChannelPointer:
    """Where a channel points, at one of its versions."""

    channel: str
    tenant: str
    #: 1, 2, 3 without a gap; 0 is a channel that nobody has used yet.
    version: int
    checkpoint: str | None = None
    digest: str | None = None
    #: The checkpoint that served before the present one.
    previous: str | None = None
    canary: str | None = None
    canary_share: float | None = None
    #: Rolled back: nothing is promoted until a person releases the channel.
    pinned: bool = False
    policy: str | None = None
    hash: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeRecord(ChannelPointer):
    action: Action
    verdict: str | None = None
    #: Made without a PASS, or though the channel was pinned.
    overridden: bool = False
    actor: str
    reason: str
    previous_hash: str = NO_HASH


@dataclass(frozen=True, kw_only=True)
class Change(ChangeRecord):
    at: int

    def pointed_at(self, checkpoint: str, digest: str) -> "Change":
        """With all traffic on a checkpoint, and no canary."""
        return replace(
            self,
            checkpoint=checkpoint,
            digest=digest,
            previous=self.previous if checkpoint == self.checkpoint else self.checkpoint,
            canary=None,
            canary_share=None,
        )

    def sealed(self) -> "Change":
        return replace(self, hash=hash_of(asdict(self)))


@dataclass(frozen=True, kw_only=True)
class ChangeAnswer(ChangeRecord):
    """A change as everybody is told of it, with where the files of both checkpoints lie."""

    at: str
    uri: str | None
    canary_digest: str | None
    canary_uri: str | None


@dataclass(frozen=True, kw_only=True)
class ChannelState(ChannelPointer):
    """A channel now. Before its first promotion it has a policy at most."""

    uri: str | None
    canary_digest: str | None
    canary_uri: str | None
    since: str | None
    changed_at: str


@dataclass(frozen=True, kw_only=True)
class ChannelNews(ChannelState):
    """The next changes after a version, and what to pass as `after` in order to miss none."""

    changes: list[ChangeAnswer] | None = None
    next: int | None = None


def unused_channel(tenant: str, channel: str) -> Change:
    return Change(
        tenant=tenant, channel=channel, version=0, action="policy", actor="", reason="", at=0
    )


def describe_change(change: ChangeRecord, before: ChangeRecord | None = None) -> str:
    """In a few words. `before` is the change before it, where that is known."""
    match change.action:
        case "promote" if change.previous is None:
            return f"{change.checkpoint} is the first"
        case "promote":
            return f"{change.previous} → {change.checkpoint}"
        case "canary":
            share = f"{100 * (change.canary_share or 0):.12g} %"
            return f"{change.canary} on {share} of the traffic, beside {change.checkpoint}"
        case "rollback":
            if before is None:  # it left another one, or a canary
                return f"back to {change.checkpoint}"
            if before.checkpoint == change.checkpoint:
                return f"back to {change.checkpoint} alone, without {before.canary}"
            return f"{before.checkpoint} → back to {change.checkpoint}"
        case "release":
            return f"released, at {change.checkpoint or 'nothing yet'}"
        case "policy":
            return f"policy {short_digest(change.policy)}"


def change_marks(change: ChangeRecord) -> str:
    marks = {"OVERRIDDEN": change.overridden, "pinned": change.pinned}
    return ", ".join(mark for mark, is_set in marks.items() if is_set)


def short_digest(digest: str | None) -> str:
    return (digest or "")[:_SHORT_CHARS]


@dataclass(frozen=True)
class Misfit:
    version: int
    why: str


def first_misfit(changes: Iterable[Change], head: tuple[int, str] | None = None) -> Misfit | None:
    """`head` is the version and the hash that the channel itself has."""
    chain = ChainReader()
    for change in changes:
        if why := chain.follow(change.version, asdict(change)):
            return Misfit(chain.number + 1, why)
    if head is not None and head != (chain.number, chain.hash):
        return Misfit(chain.number + 1, f"the channel itself is at version {head[0]}")
    return None


class ChannelUnknown(PenstockError, exit_status=2, http_status=404):
    """There is no channel {name!r}; `penstock channels list` shows those there are. The first
    promotion to a channel, or a policy for it, makes it."""


class PromotionConflict(PenstockError, http_status=409):
    """The channel {channel} was expected at {expected}, and is at {found} (version {version},
    {since}). Nothing was changed. Look what happened with `penstock channels history`, and decide
    anew."""

    @property
    def http_fields(self) -> dict[str, Any]:
        return {name: self.facts[name] for name in ("expected", "found", "version")}

    def __str__(self) -> str:
        names = ("expected", "found")
        none = {name: "no checkpoint" for name in names if self.facts[name] is None}
        return inspect.cleandoc(type(self).__doc__ or "").format(**self.facts | none)


class ChannelPinned(PenstockError, http_status=409):
    """The channel {channel} is pinned since {actor} rolled it back: {reason}. Nothing was changed.
    Once the cause is known, `penstock channels release` lets it be promoted again."""


class NotPinned(PenstockError, http_status=409):
    """The channel {channel} is not pinned: there is nothing to release."""


class OverrideRefused(PenstockError, http_status=403):
    """Only an admin may go past the gate: {why}. Nothing was changed."""


class AlreadyServing(PenstockError, http_status=409):
    """The channel {channel} is at {checkpoint} already{how}. Nothing was changed."""


class NothingToRollBackTo(PenstockError, http_status=409):
    """The channel {channel} cannot go back: {why}. Nothing was changed. `--to` names a checkpoint
    that served on it, or a parent of the present one."""


class HistoryDamaged(PenstockError):
    """The history of the channel {channel} does not fit at version {version}: {why}. Somebody
    changed the database by hand. Compare with a copy of it, and with the notices that were sent:
    each carries the hash of its change."""


class WebhookUnknown(PenstockError, exit_status=2, http_status=404):
    """There is no webhook {id!r}; `penstock webhooks list` shows those there are."""


class NothingServed(PenstockError, http_status=409):
    """The channel {channel} has no checkpoint yet: nothing was promoted to it."""
