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
    """Sessions that begin from the first time to before the second count, in microseconds. `share`
    is the canary's; None where the traffic was not split."""

    from_us: int
    until_us: int | None
    share: float | None = None


@dataclass(frozen=True)
class Trial:
    """A comparison. It begins with a change of the channel, and is another one after the next
    canary or promotion."""

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
    settle_us, watch_us, newest = round(settle_s * SECOND_US), round(watch_s * SECOND_US), changes[-1]
    if newest.canary is not None and newest.checkpoint is not None:
        pair = (newest.checkpoint, newest.canary)
        same_pair = takewhile(lambda c: (c.checkpoint, c.canary) == pair, reversed(changes))
        steps: list[Change] = []
        for change in reversed(list(same_pair)):
            # A change of the policy or a release does not change the split.
            if not steps or steps[-1].canary_share != change.canary_share:
                steps.append(change)
        ends = [*(step.at for step in steps[1:]), None]
        periods = tuple(
            Period(step.at + settle_us, end, step.canary_share)
            for step, end in zip(steps, ends, strict=True)
            if end is None or step.at + settle_us < end
        )
        return Trial(
            newest.tenant, newest.channel, "canary", newest.canary, newest.checkpoint,
            since_version=steps[0].version, since_us=steps[0].at, version=newest.version,
            candidate_periods=periods, incumbent_periods=periods,
            split_us=tuple(step.at for step in steps),
        )  # fmt: skip
    promoted = next((change for change in reversed(changes) if change.action != "policy"), None)
    if promoted is None or promoted.action != "promote" or promoted.pinned:
        return None
    if promoted.checkpoint is None or promoted.previous is None:
        return None
    if now_us >= promoted.at + watch_us:
        return None
    return Trial(
        promoted.tenant, promoted.channel, "watch", promoted.checkpoint, promoted.previous,
        since_version=promoted.version, since_us=promoted.at, version=newest.version,
        candidate_periods=(Period(promoted.at + settle_us, promoted.at + watch_us),),
        incumbent_periods=(Period(promoted.at - watch_us, promoted.at),),
        split_us=(promoted.at,), until_us=promoted.at + watch_us,
    )  # fmt: skip
