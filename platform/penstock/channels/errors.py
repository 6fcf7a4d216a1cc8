"""The errors of channels."""

import inspect
from typing import Any

from penstock.errors import PenstockError


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
