"""A trial: which two checkpoints of a channel are compared, and on what traffic.

A canary is compared with the current checkpoint while both serve, from its first change on. After a
full promotion, the new checkpoint is compared with the previous one and its earlier traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from penstock.core.clock import SECOND_US
from penstock.registry.channels.change import Change

Kind = Literal["canary", "watch"]


@dataclass(frozen=True)
class Period:
    from_us: int
    until_us: int | None
    share: float | None = None


@dataclass(frozen=True)
class Trial:
    """A comparison. It begins with a canary or a promotion, and ends with the next one."""

    tenant: str
    channel: str
    kind: Kind
    candidate: str
    incumbent: str
    since_version: int
    since_us: int
    #: The newest change of the channel. A step or a rollback fails if there is a newer one.
    version: int
    #: When the traffic of each side counts. In a canary both have the same periods.
    candidate_periods: tuple[Period, ...]
    incumbent_periods: tuple[Period, ...]
    split_us: tuple[int, ...]
    until_us: int | None = None

    @property
    def share(self) -> float | None:
        return self.candidate_periods[-1].share

    @property
    def step_us(self) -> int:
        return self.split_us[-1]

    @property
    def reads_from_us(self) -> int:
        return min(period.from_us for period in (*self.candidate_periods, *self.incumbent_periods))


def trial_of(
    changes: Sequence[Change], *, now_us: int, settle_s: float, watch_s: float
) -> Trial | None:
    """Derive the trial from a channel's newest changes.

    Traffic within `settle_s` of a new split does not count: engines still take it up."""
    if not changes:
        return None
    newest, settle_us = changes[-1], round(settle_s * SECOND_US)
    kind: Kind = "canary"
    candidate, incumbent, until_us = newest.canary, newest.checkpoint, None
    if candidate is not None and incumbent is not None:
        pair = (incumbent, candidate)
        same_pair = takewhile(lambda c: (c.checkpoint, c.canary) == pair, reversed(changes))
        steps: list[Change] = []
        for change in reversed(list(same_pair)):
            # A change of the policy or a release does not change the split.
            if not steps or steps[-1].canary_share != change.canary_share:
                steps.append(change)
        ends = [*(step.at for step in steps[1:]), None]
        candidate_periods = incumbent_periods = tuple(
            Period(step.at + settle_us, end, step.canary_share)
            for step, end in zip(steps, ends, strict=True)
            if end is None or step.at + settle_us < end
        )
    else:
        steps = [change for change in changes if change.action != "policy"][-1:]
        if not steps or steps[0].action != "promote" or steps[0].pinned:
            return None
        kind, candidate, incumbent = "watch", steps[0].checkpoint, steps[0].previous
        until_us = steps[0].at + round(watch_s * SECOND_US)
        if candidate is None or incumbent is None or now_us >= until_us:
            return None
        candidate_periods = (Period(steps[0].at + settle_us, until_us),)
        incumbent_periods = (Period(2 * steps[0].at - until_us, steps[0].at),)
    return Trial(
        tenant=newest.tenant,
        channel=newest.channel,
        kind=kind,
        candidate=candidate,
        incumbent=incumbent,
        since_version=steps[0].version,
        since_us=steps[0].at,
        version=newest.version,
        candidate_periods=candidate_periods,
        incumbent_periods=incumbent_periods,
        split_us=tuple(step.at for step in steps),
        until_us=until_us,
    )
