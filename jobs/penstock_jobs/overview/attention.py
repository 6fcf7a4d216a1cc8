"""What needs a person, as sentences with a link to where it is dealt with: decided from what the
overview knows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.channels.channel import ChannelAnswer
from penstock.ingest.calls import LedgerAnswer
from penstock_jobs.loop.calls import CycleAnswer

#: Events that wait longer to be stored than this are not on their way any more.
WAITING_SECONDS_MAX = 60.0
#: Where more of the sessions than this say nothing, rewards rest on the few that are left.
SILENT_SHARE_MAX = 0.5
#: Where fewer sessions have ended, shares say little.
_SESSIONS_MIN = 20
#: Where more lines than this are rejected, a producer is broken.
_REJECTED_SHARE_MAX = 0.01
Tone = Literal["bad", "warn"]


@dataclass(frozen=True)
class Notice:
    tone: Tone
    sentence: str
    #: Of the page where it is dealt with.
    href: str
    link: str


@dataclass(frozen=True)
class Facts:
    """What the overview knows; None is what its visitor may not ask."""

    now_s: float
    ledger: LedgerAnswer | None = None
    #: When the oldest event that waits to be stored came, in seconds since 1970.
    waiting_since_s: float | None = None
    channels: Sequence[ChannelAnswer] = ()
    cycles: Sequence[CycleAnswer] = ()
    #: Sessions by how they ended, and those without rewards as an empty name.
    outcomes: Mapping[str, int] = field(default_factory=dict)
    sessions: int = 0


def notices_of(facts: Facts) -> list[Notice]:
    """The gravest first."""
    found = [*_of_ledger(facts), *_of_channels(facts), *_of_cycles(facts), *_of_rewards(facts)]
    return sorted(found, key=lambda notice: notice.tone != "bad")


def _of_ledger(facts: Facts) -> Iterator[Notice]:
    ledger = facts.ledger
    if ledger is None:
        return
    for sentence in ledger.discrepancies[:3]:
        yield Notice("bad", f"The ledger does not add up: {sentence}", "/health", "Health")
    gaps = [gap for gap in ledger.gaps if gap.accepted_at is None]
    if gaps:
        lost = sum(gap.to_offset - gap.from_offset for gap in gaps)
        sentence = f"{lost} offsets of the log were lost before the lake had them."
        yield Notice("bad", sentence, "/health", "Health")
    waited_s = 0.0 if facts.waiting_since_s is None else facts.now_s - facts.waiting_since_s
    if ledger.waiting is not None and waited_s > WAITING_SECONDS_MAX:
        count, minutes = ledger.waiting.events, waited_s / 60
        sentence = f"{count} events have waited {minutes:.0f} min to be stored."
        yield Notice("bad", f"{sentence} {ledger.waiting.why}".strip(), "/health", "Health")
    totals = ledger.totals
    came = totals.accepted + totals.rejected
    if totals.rejected > came * _REJECTED_SHARE_MAX:
        sentence = f"{totals.rejected} of {came} lines were rejected."
        yield Notice("warn", sentence, "/health", "Rejected lines")
    if totals.dropped:
        sentence = f"Recorders had to drop {totals.dropped} events before they were sent."
        yield Notice("warn", sentence, "/health", "Health")


def _of_channels(facts: Facts) -> Iterator[Notice]:
    for channel in facts.channels:
        if channel.pinned:
            sentence = (
                f"{channel.channel} is pinned to {channel.checkpoint}: the loop promotes nothing "
                "until a person releases it."
            )
            yield Notice("warn", sentence, "/checkpoints", "Checkpoints")


def _of_cycles(facts: Facts) -> Iterator[Notice]:
    for cycle in facts.cycles:
        name = f"Cycle {cycle.cycle} of {cycle.loop}"
        if cycle.outcome == "failed":
            yield Notice("bad", f"{name} failed: {cycle.why}", "#loops", "The loop")
        elif cycle.outcome is None and any(stage.silent for stage in cycle.stages):
            stages = ", ".join(stage.stage for stage in cycle.stages if stage.silent)
            sentence = f"{name} stands still: nothing was heard of {stages} for too long."
            yield Notice("bad", sentence, "#loops", "The loop")
        elif cycle.outcome is None and cycle.over_budget:
            over_min = ((cycle.took_s or 0) - cycle.budget_s) / 60
            yield Notice(
                "warn", f"{name} is {over_min:.0f} min over its budget.", "#loops", "The loop"
            )


def _of_rewards(facts: Facts) -> Iterator[Notice]:
    known = sum(facts.outcomes.values())
    if facts.sessions and not known:
        sentence = "No run has computed what sessions were worth."
        yield Notice("warn", sentence, "/rewards", "Rewards")
    ended = known - facts.outcomes.get("pending", 0)
    if ended < _SESSIONS_MIN:
        return
    for kind, why in (
        ("censored", "nobody looked at what became of them"),
        ("excluded", "rules leave them out"),
        ("negative_by_rule", "they broke a rule"),
    ):
        count = facts.outcomes.get(kind, 0)
        if count > SILENT_SHARE_MAX * ended:
            word = kind.replace("_", " ")
            sentence = f"{count} of {ended} sessions are {word}: {why}."
            yield Notice("warn", sentence, f"/sessions?outcome={kind}", "These sessions")
