"""Channels and their changes, as the history keeps them and as answers show them. Pure.

A change holds the whole state of its channel after it, and the hash of the change before."""

import inspect
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.backends.audit.entry import NO_HASH
from penstock.core.errors import PenstockError
from penstock.core.notebook import NotebookRecord

Action = Literal["promote", "rollback", "canary", "release", "policy"]
CHANNEL_DEFAULT = "production"
_SHORT_CHARS = len("sha256:") + 12


@dataclass(frozen=True, kw_only=True)
class ChannelPointer(NotebookRecord):
    """One version of a channel: the checkpoint it points at, its canary and its policy."""

    channel: str
    tenant: str
    #: Counts 1, 2, 3 without a gap; 0 is a channel that nobody has used yet.
    version: int
    checkpoint: str | None = None
    digest: str | None = None
    #: The checkpoint that served before the present one.
    previous: str | None = None
    canary: str | None = None
    canary_share: float | None = None
    #: The numbers of their weights: the version since which each serves, as a canary or whole.
    checkpoint_version: int | None = None
    canary_version: int | None = None
    #: A rollback pins the channel: nothing is promoted until a person releases it.
    pinned: bool = False
    policy: str | None = None
    hash: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeRecord(ChannelPointer):
    action: Action
    verdict: str | None = None
    #: Made without a PASS, or while the channel was pinned.
    overridden: bool = False
    actor: str
    reason: str
    previous_hash: str = NO_HASH


@dataclass(frozen=True, kw_only=True)
class Change(ChangeRecord):
    at: int

    def pointed_at(self, checkpoint: str, digest: str) -> "Change":
        """Point all traffic at a checkpoint, and end the canary."""
        return replace(
            self,
            checkpoint=checkpoint,
            digest=digest,
            previous=self.previous if checkpoint == self.checkpoint else self.checkpoint,
            canary=None,
            canary_share=None,
        )


@dataclass(frozen=True, kw_only=True)
class ChangeAnswer(ChangeRecord):
    """A change as it is shown to clients, with the locations of both checkpoints."""

    at: str
    uri: str | None
    canary_digest: str | None
    canary_uri: str | None


@dataclass(frozen=True, kw_only=True)
class ChannelState(ChannelPointer):
    """The present state of a channel. Before its first promotion it has at most a policy."""

    uri: str | None
    canary_digest: str | None
    canary_uri: str | None
    since: str | None
    changed_at: str


@dataclass(frozen=True, kw_only=True)
class ChannelNews(ChannelState):
    """The next changes after a version. `next` is the `after` that misses none."""

    changes: list[ChangeAnswer] | None = None
    next: int | None = None


def unused_channel(tenant: str, channel: str) -> Change:
    return Change(
        tenant=tenant, channel=channel, version=0, action="policy", actor="", reason="", at=0
    )


def describe_change(change: ChangeRecord, before: ChangeRecord | None = None) -> str:
    """Describe a change in a few words. `before` is the previous change, if known."""
    match change.action:
        case "promote" if change.previous is None:
            return f"{change.checkpoint} is the first checkpoint"
        case "promote":
            return f"{change.previous} → {change.checkpoint}"
        case "canary":
            share = f"{100 * (change.canary_share or 0):.12g} %"
            return f"canary {change.canary} on {share} of the traffic, beside {change.checkpoint}"
        case "rollback":
            if before is None:  # what it left is unknown
                return f"back to {change.checkpoint}"
            if before.checkpoint == change.checkpoint:
                return f"back to {change.checkpoint} alone, without {before.canary}"
            return f"{before.checkpoint} → back to {change.checkpoint}"
        case "release":
            return f"released, at {change.checkpoint or 'no checkpoint yet'}"
        case "policy":
            return f"policy {short_digest(change.policy)}"


def change_marks(change: ChangeRecord) -> str:
    marks = {"OVERRIDDEN": change.overridden, "pinned": change.pinned}
    return ", ".join(mark for mark, is_set in marks.items() if is_set)


def short_digest(digest: str | None) -> str:
    return (digest or "")[:_SHORT_CHARS]


class ChannelUnknown(PenstockError, exit_status=2, http_status=404):
    """The channel {name!r} does not exist. `penstock channels list` shows all channels. The first
    promotion or policy of a channel creates it."""


class PromotionConflict(PenstockError, http_status=409):
    """The channel {channel} was expected at {expected}, but is at {found} (version {version},
    {since}). Nothing was changed. See `penstock channels history`, then decide again."""

    @property
    def http_fields(self) -> dict[str, Any]:
        return {name: self.facts[name] for name in ("expected", "found", "version")}

    def __str__(self) -> str:
        names = ("expected", "found")
        none = {name: "no checkpoint" for name in names if self.facts[name] is None}
        return inspect.cleandoc(type(self).__doc__ or "").format(**self.facts | none)


class ChannelPinned(PenstockError, http_status=409):
    """The channel {channel} is pinned since {actor} rolled it back: {reason}. Nothing was changed.
    `penstock channels release` allows promotions again."""


class NotPinned(PenstockError, http_status=409):
    """The channel {channel} is not pinned, so there is nothing to release."""


class OverrideRefused(PenstockError, http_status=403):
    """Only an admin may override the gate: {why}. Nothing was changed."""


class AlreadyServing(PenstockError, http_status=409):
    """The channel {channel} already points at {checkpoint}{how}. Nothing was changed."""


class NothingToRollBackTo(PenstockError, http_status=409):
    """The channel {channel} cannot be rolled back: {why}. Nothing was changed. `--to` names a
    checkpoint that served on it, or a parent of the present one."""


class HistoryDamaged(PenstockError):
    """The history of the channel {channel} is damaged at version {version}: {why}. Somebody changed
    the database by hand. Compare it with a backup and with the notices that were sent: each notice
    carries the hash of its change."""


class WebhookUnknown(PenstockError, exit_status=2, http_status=404):
    """The webhook {id!r} does not exist. `penstock webhooks list` shows all webhooks."""


class NothingServed(PenstockError, http_status=409):
    """The channel {channel} has no checkpoint yet: nothing was promoted to it."""
