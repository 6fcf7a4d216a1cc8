"""People of the demo who label messages, and how far the judge was from the truth."""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import Lake
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.followups.dissatisfaction import read_dissatisfaction
from penstock_jobs.rewards.followups.labels import (
    StoredLabel,
    add_label,
    by_people,
    current_labels,
    read_follow_ups,
)
from penstock_jobs.rewards.followups.questions import kept_frame, next_questions
from penstock_jobs.simulator.demo.story import UserReaction
from penstock_jobs.simulator.users import Words

#: What users said in each session.
SaidBySession = Mapping[str, Sequence[Words]]
#: A rate, and half of its interval.
RateAndMargin = tuple[float, float]
_PERSON = "demo"


def label_messages(
    lake: Lake,
    definition: Definition,
    checkpoint: str,
    said: SaidBySession,
    *,
    sessions: set[str],
    count: int,
) -> None:
    """Let a person label messages that chance draws, until so many are of these sessions."""
    version = definition.version
    while count > 0:
        labels, again = (
            by_people(current_labels(lake.database, TENANT_DEFAULT, again=again))
            for again in (False, True)
        )
        frame = kept_frame(lake, version, TENANT_DEFAULT, checkpoint, labels)
        question = next(next_questions(frame, labels, again), None)
        if question is None:
            return
        words = said[question.place.session_id][question.place.turn - 1]
        label = StoredLabel(
            *question.place,
            sha256(words.text.encode()).hexdigest(),
            words.label,
            question.drawn,
            frame.until_us,
            by=_PERSON,
            is_model=False,
            again=question.again,
        )
        add_label(lake.database, TENANT_DEFAULT, label, version)
        count -= question.place.session_id in sessions


def corrected_rate(lake: Lake, definition: Definition, sessions: set[str]) -> RateAndMargin | None:
    """Read the rate of dissatisfied users, corrected by labels. None with too few of them."""
    follow_ups = read_follow_ups(lake, definition.version, TENANT_DEFAULT).of_sessions(sessions)
    [found] = read_dissatisfaction(lake, TENANT_DEFAULT, {"served": follow_ups}).values()
    interval = found.interval()
    if interval is None or found.rate.value is None:
        return None
    return found.rate.value, (interval.high - interval.low) / 2


class JudgeMiss(msgspec.Struct, frozen=True):
    """Distances of rates of dissatisfied users from the truth: of the judge's own rate, and of the
    rate that labels correct, where people labelled messages."""

    checkpoint: str
    judged: float | None
    corrected: float | None

    @classmethod
    def of(
        cls,
        checkpoint: str,
        measured: UserReaction,
        known: UserReaction,
        corrected: RateAndMargin | None,
    ) -> "JudgeMiss":
        def miss(rate: float | None) -> float | None:
            true = known.dissatisfied
            return None if rate is None or true is None else abs(rate - true)

        return cls(checkpoint, miss(measured.dissatisfied), miss(corrected and corrected[0]))


def judge_sentences(misses: Sequence[JudgeMiss]) -> str:
    """Say how far the judge was from the truth at the most, in all lines that were shown."""
    judged = [(miss.judged, miss.checkpoint) for miss in misses if miss.judged is not None]
    if not judged:
        return "The judge read no message."
    most, checkpoint = max(judged)
    text = (
        f"The judge's rate of dissatisfied users was up to {100 * most:.0f} points from"
        f" the truth, for {checkpoint}: it is a small model, and errs more on some"
        " checkpoints than on others."
    )
    if corrected := [miss.corrected for miss in misses if miss.corrected is not None]:
        text += (
            " Where a rollback decides, labels of messages that chance draws correct it: that was"
            f" up to {100 * max(corrected):.0f} points from the truth."
        )
    return text
