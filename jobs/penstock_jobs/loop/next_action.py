"""What comes next in a loop: a pure decision by the newest cycle, the channel and the clock.

Whoever asks the same again gets the same answer, so any number of runners may ask.
"""

from dataclasses import dataclass

from penstock_jobs.loop.cycles import Cycle, CycleOutcome, CycleStage
from penstock_jobs.loop.loop_file import RetryPolicy

_SECOND_US = 1_000_000
#: The stage that decides when a cycle begins, and the one that moves the channel.
FIRST, MOVES = "rewards", "promote"


@dataclass(frozen=True, kw_only=True)
class ChannelFacts:
    channel: str
    checkpoint: str | None
    canary: str | None = None
    pinned: bool = False


@dataclass(frozen=True)
class OpenCycle:
    number: int


@dataclass(frozen=True)
class RunStage:
    stage: str


@dataclass(frozen=True)
class EndCycle:
    outcome: CycleOutcome
    why: str


@dataclass(frozen=True)
class Wait:
    """Until then at most; None: nobody knows how long."""

    why: str
    until_us: int | None = None


Action = OpenCycle | RunStage | EndCycle | Wait


def next_action(
    last: Cycle | None, retry: RetryPolicy, channel: ChannelFacts, now_us: int, failed: int = 0
) -> Action:
    """`failed`: how many of the newest cycles in a row have failed."""
    if last is None:
        return OpenCycle(1)
    if last.ended_at is not None:
        until_us = last.ended_at + pause_us(retry, failed)
        if until_us > now_us:
            return Wait(f"cycle {last.number} failed, as {failed} in a row did", until_us)
        return OpenCycle(last.number + 1)
    stage = next((stage for stage in last.stages if stage.state != "done"), None)
    if stage is None:
        return EndCycle("promoted", "")
    if stage.state == "failed":
        return EndCycle("failed", f"{stage.stage}: {stage.why}")
    if stage.state == "over":
        return EndCycle((stage.result or {}).get("ends") or "refused", stage.why)
    if stage.state == "running" and stage.lease_until >= now_us:
        return Wait(f"{stage.owner} does {stage.stage}", stage.lease_until + 1)
    if stage.stage == FIRST:
        if why := _not_ready(channel):
            return Wait(why)
    elif (moved := _moved(last, stage, channel)) is not None:
        return moved
    if stage.not_before > now_us:
        return Wait(stage.why, stage.not_before)
    return RunStage(stage.stage)


def pause_us(retry: RetryPolicy, failures: int) -> int:
    """After so many failures in a row: none after none."""
    if failures < 1:
        return 0
    # The power is bounded, since the number of failures is not.
    pause_s = min(retry.pause_s * 2.0 ** min(failures - 1, 40), retry.longest_s)
    return round(pause_s * _SECOND_US)


def _not_ready(channel: ChannelFacts) -> str | None:
    """Why no cycle can begin on the channel as it is."""
    if channel.checkpoint is None:
        return f"nothing is promoted to {channel.channel} yet: promote a first checkpoint by hand"
    if channel.pinned:
        return f"{channel.channel} is pinned until a person says `penstock channels release`"
    if channel.canary is not None:
        return f"the canary {channel.canary} is tried on {channel.channel}"
    return None


def _moved(cycle: Cycle, stage: CycleStage, channel: ChannelFacts) -> EndCycle | None:
    """Whether the channel moved before the cycle's checkpoint was promoted: it was trained on
    sessions of a checkpoint that no longer serves."""
    names = [stage.stage for stage in cycle.stages]
    before_promotion = names.index(stage.stage) < names.index(MOVES)
    if not before_promotion or channel.checkpoint == cycle.parent:
        return None
    moved = f"{channel.channel} is at {channel.checkpoint} by now"
    return EndCycle("refused", f"{moved}, and this cycle began at {cycle.parent}")
