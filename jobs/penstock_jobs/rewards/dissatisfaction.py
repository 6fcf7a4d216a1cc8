"""How often users come back dissatisfied: what the local judge thinks of all follow-ups, corrected
by what people or a language model said of some."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.lake import Lake
from penstock_jobs.rewards.correction import (
    CorrectedRate,
    JudgedMessages,
    MeanInterval,
    correct,
    interval,
)
from penstock_jobs.rewards.followups.labels import (
    MessagePlace,
    StoredLabel,
    by_people,
    current_labels,
    people_first,
)
from penstock_jobs.rewards.judged_follow_ups import JudgedFollowUps

#: The reward that holds what the judge thinks of each message.
JUDGED = "judged_follow_up"
#: The name of the rate, and of the live metric.
RATE = "dissatisfied"
TruthBy = Literal["people", "models", "nobody"]
#: What names a group of sessions: a checkpoint, or the arm of a trial.
Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Dissatisfaction:
    """Of one group of sessions, such as those of a checkpoint."""

    #: In the order of the rate's values.
    sessions: pa.Array
    rate: CorrectedRate
    #: Who said what is true.
    truth_by: TruthBy
    #: Sessions that ended later than the messages that labels were drawn from.
    later: int

    def interval(self, alpha: float = 0.05) -> MeanInterval | None:
        return interval(self.rate, alpha)


def read_dissatisfaction(
    lake: Lake, tenant: str, groups: Mapping[Group, JudgedFollowUps]
) -> dict[Group, Dissatisfaction]:
    """By group; those without follow-ups have none."""
    labels = current_labels(lake.database, tenant)
    return dissatisfaction(groups, labels)


def dissatisfaction(
    groups: Mapping[Group, JudgedFollowUps], labels: Sequence[StoredLabel]
) -> dict[Group, Dissatisfaction]:
    """What people said counts where they labelled enough in each group with labels, else also what
    models said: to mix them as each group has them would compare judges, not checkpoints."""
    people = by_people(labels)
    tried = [
        ("people", _described(groups, people, "people")),
        ("models", _described(groups, people_first(labels), "models")),
    ]
    known = {name: sum(group.rate.is_known for group in found.values()) for name, found in tried}
    return tried[0][1] if known["people"] >= known["models"] else tried[1][1]


def _described(
    groups: Mapping[Group, JudgedFollowUps],
    labels: Sequence[StoredLabel],
    truth_by: TruthBy,
) -> dict[Group, Dissatisfaction]:
    by_place = {label.place: label for label in labels}
    frames = {
        name: _frame(follow_ups, by_place) for name, follow_ups in groups.items() if follow_ups
    }
    rates = correct([frame.messages for frame in frames.values()])
    return {
        name: Dissatisfaction(
            frame.sessions, rate, truth_by if rate.labels else "nobody", frame.later
        )
        for (name, frame), rate in zip(frames.items(), rates, strict=True)
    }


class _Frame(NamedTuple):
    sessions: pa.Array
    messages: JudgedMessages
    later: int


def _frame(follow_ups: JudgedFollowUps, labels: Mapping[MessagePlace, StoredLabel]) -> _Frame:
    """The messages that labels were drawn from: those of sessions that were quiet when somebody
    began to label. What came later has had no chance to be drawn. Of several such times the one
    that leaves the most labels."""
    own = [labels[place] for place in follow_ups.numbers_of(labels.keys())]
    untils = sorted({label.until_us for label in own if label.drawn})[-_TIMES_MAX:]
    sessions, messages = _messages(follow_ups, labels)
    everything = _Frame(sessions, messages, 0)
    frames: list[_Frame] = []
    for until_us in untils:
        covered = follow_ups.where(pc.less_equal(follow_ups.rows["last_us"], until_us))
        if covered:
            sessions, messages = _messages(covered, labels)
            frames.append(_Frame(sessions, messages, len(everything.sessions) - len(sessions)))
    most: _Frame = max(
        reversed(frames or [everything]),
        key=lambda frame: int(frame.messages.sampled()[0].sum()),
    )
    return most


#: How many times at which somebody began to label are tried.
_TIMES_MAX = 20


def _messages(
    follow_ups: JudgedFollowUps, labels: Mapping[MessagePlace, StoredLabel]
) -> tuple[pa.Array, JudgedMessages]:
    numbers, sessions = follow_ups.sessions()
    truth = np.full(len(follow_ups), np.nan)
    chosen = np.zeros(len(follow_ups), bool)
    for place, number in follow_ups.numbers_of(labels.keys()).items():
        label = labels[place]
        truth[number] = np.nan if label.truth is None else label.truth
        chosen[number] = not label.drawn
    messages = JudgedMessages(
        session=numbers,
        sessions=len(sessions),
        judged=follow_ups.column("judged"),
        truth=truth,
        place=follow_ups.column("drawn_at"),
        chosen=chosen,
    )
    return sessions, messages
