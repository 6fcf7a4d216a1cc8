"""A trial: which two checkpoints of a channel are compared, and on what traffic.

A canary is compared with the current checkpoint while both serve, from its first change on. After a
full promotion the new one is compared with the one before, which served before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from penstock.channels.change import Change
from penstock.clock import SECOND_US

Kind = Literal["canary", "watch"]


@dataclass(frozen=True)
class Period:
    """In which sessions begin that count. The canary's share is None without a split."""

    from_us: int
    until_us: int | None
    share: float | None = None


@dataclass(frozen=True)
class Trial:
    """It begins with a canary or a promotion, and ends with the next."""

    tenant: str
    channel: str
    kind: Kind
    candidate: str
    incumbent: str
    #: The change that it began with, and its time.
    since_version: int
    since_us: int
    #: The newest change when this was read. A step or a rollback expects that it is still so.
    version: int
    #: When the traffic of each counts. In a canary both have the same periods.
    candidate_periods: tuple[Period, ...]
    incumbent_periods: tuple[Period, ...]
    #: When the split of the traffic changed, in order.
    split_us: tuple[int, ...]
    #: Until when it is watched; None while the canary runs.
    until_us: int | None = None

    @property
    def share(self) -> float | None:
        return self.candidate_periods[-1].share

    @property
    def step_us(self) -> int:
        """When the share became what it is."""
        return self.split_us[-1]

    @property
    def reads_from_us(self) -> int:
        return min(period.from_us for period in (*self.candidate_periods, *self.incumbent_periods))


def trial_of(
    changes: Sequence[Change], *, now_us: int, settle_s: float, watch_s: float
) -> Trial | None:
    """The current trial by the newest changes of a channel, in their order; None if there is none.
    Sessions that began in the `settle_s` after a change of the split do not count: engines may not
    have taken up the change."""
    if not changes:
        return None
    settle_us = round(settle_s * SECOND_US)
    newest = changes[-1]
    if newest.canary is not None and newest.checkpoint is not None:
        return _canary(changes, settle_us)
    return _watch(changes, now_us, settle_us, round(watch_s * SECOND_US))


def _canary(changes: Sequence[Change], settle_us: int) -> Trial:
    newest = changes[-1]
    pair = (newest.checkpoint, newest.canary)
    same_pair = list(
        takewhile(lambda change: (change.checkpoint, change.canary) == pair, reversed(changes))
    )[::-1]
    # A change of the policy or a release does not change the split.
    steps = [
        change
        for before, change in zip((None, *same_pair), same_pair, strict=False)
        if before is None or before.canary_share != change.canary_share
    ]
    ends = [step.at for step in steps[1:]] + [None]
    periods = tuple(
        Period(step.at + settle_us, end, step.canary_share)
        for step, end in zip(steps, ends, strict=True)
        if end is None or step.at + settle_us < end
    )
    return Trial(
        newest.tenant, newest.channel, "canary", newest.canary or "", newest.checkpoint or "",
        since_version=same_pair[0].version, since_us=same_pair[0].at, version=newest.version,
        candidate_periods=periods, incumbent_periods=periods,
        split_us=tuple(step.at for step in steps),
    )  # fmt: skip


def _watch(changes: Sequence[Change], now_us: int, settle_us: int, watch_us: int) -> Trial | None:
    promoted = next((change for change in reversed(changes) if change.action != "policy"), None)
    if promoted is None or promoted.action != "promote" or promoted.pinned:
        return None
    if promoted.checkpoint is None or promoted.previous is None:
        return None
    if now_us >= promoted.at + watch_us:
        return None
    return Trial(
        promoted.tenant, promoted.channel, "watch", promoted.checkpoint, promoted.previous,
        since_version=promoted.version, since_us=promoted.at, version=changes[-1].version,
        candidate_periods=(Period(promoted.at + settle_us, promoted.at + watch_us),),
        incumbent_periods=(Period(promoted.at - watch_us, promoted.at),),
        split_us=(promoted.at,), until_us=promoted.at + watch_us,
    )  # fmt: skip
