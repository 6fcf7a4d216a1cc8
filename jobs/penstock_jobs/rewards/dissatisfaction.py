"""How often users come back dissatisfied: what the local judge thinks of all follow-ups, corrected
by what people or a language model said of some."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
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
    draw,
    people_first,
)

#: The reward that holds what the judge thinks of each message.
JUDGED = "judged_follow_up"
#: The name of the rate, and of the live metric.
RATE = "dissatisfied"
TruthBy = Literal["people", "models", "nobody"]
#: What names a group of sessions: a checkpoint, or the arm of a trial.
Group = TypeVar("Group", bound=Hashable)


class JudgedFollowUp(NamedTuple):
    session_id: str
    turn: int
    judged: float
    checkpoint: str | None
    first_us: int
    last_us: int

    @property
    def place(self) -> MessagePlace:
        return MessagePlace(self.session_id, self.turn)


@dataclass(frozen=True, eq=False)
class Dissatisfaction:
    """Of one group of sessions, such as those of a checkpoint."""

    #: In the order of the rate's values.
    sessions: tuple[str, ...]
    rate: CorrectedRate
    #: Who said what is true.
    truth_by: TruthBy
    #: Sessions that ended later than the messages that labels were drawn from.
    later: int

    def interval(self, alpha: float = 0.05) -> MeanInterval | None:
        return interval(self.rate, alpha)


def read_follow_ups(
    lake: Lake,
    version: str,
    tenant: str,
    *,
    since_us: int | None = None,
    computed_us: int | None = None,
) -> list[JudgedFollowUp]:
    """None where the definition has no JUDGED. Raises what queries raise."""
    sql = files("penstock_jobs.rewards").joinpath("followups.sql").read_text(encoding="utf-8")
    facts = {"version": version, "since_us": since_us, "computed_us": computed_us}
    query = OwnQuery(sql, frozenset({"rewards", "outcomes"}), facts)
    columns = lake.query(query, tenant=tenant).arrow().to_pydict()
    return list(map(JudgedFollowUp, *(columns[name] for name in JudgedFollowUp._fields)))


def read_dissatisfaction(
    lake: Lake, tenant: str, groups: Mapping[Group, Sequence[JudgedFollowUp]]
) -> dict[Group, Dissatisfaction]:
    """By group; those without follow-ups have none."""
    labels = current_labels(lake.database, tenant)
    return dissatisfaction(tenant, groups, labels)


def dissatisfaction(
    tenant: str, groups: Mapping[Group, Sequence[JudgedFollowUp]], labels: Sequence[StoredLabel]
) -> dict[Group, Dissatisfaction]:
    """What people said counts where they labelled enough in each group with labels, else also what
    models said: to mix them as each group has them would compare judges, not checkpoints."""
    people = by_people(labels)
    tried = [
        ("people", _described(tenant, groups, people, "people")),
        ("models", _described(tenant, groups, people_first(labels), "models")),
    ]
    known = {name: sum(group.rate.is_known for group in found.values()) for name, found in tried}
    return tried[0][1] if known["people"] >= known["models"] else tried[1][1]


def _described(
    tenant: str,
    groups: Mapping[Group, Sequence[JudgedFollowUp]],
    labels: Sequence[StoredLabel],
    truth_by: TruthBy,
) -> dict[Group, Dissatisfaction]:
    by_place = {label.place: label for label in labels}
    frames = {
        name: _frame(tenant, follow_ups, by_place)
        for name, follow_ups in groups.items()
        if follow_ups
    }
    rates = correct([frame.messages for frame in frames.values()])
    return {
        name: Dissatisfaction(
            frame.sessions, rate, truth_by if rate.labels else "nobody", frame.later
        )
        for (name, frame), rate in zip(frames.items(), rates, strict=True)
    }


class _Frame(NamedTuple):
    sessions: tuple[str, ...]
    messages: JudgedMessages
    later: int


def _frame(
    tenant: str,
    follow_ups: Sequence[JudgedFollowUp],
    labels: Mapping[MessagePlace, StoredLabel],
) -> _Frame:
    """The messages that labels were drawn from: those of sessions that were quiet when somebody
    began to label. What came later has had no chance to be drawn. Of several such times the one
    that leaves the most labels."""
    own = [labels[each.place] for each in follow_ups if each.place in labels]
    untils = sorted({label.until_us for label in own if label.drawn})[-_TIMES_MAX:]
    all_messages = _messages(tenant, follow_ups, labels)
    frames = [_Frame(*all_messages, 0)] if not untils else []
    for until_us in untils:
        covered = [each for each in follow_ups if each.last_us <= until_us]
        if covered:
            sessions, messages = _messages(tenant, covered, labels)
            later = len({each.session_id for each in follow_ups}) - len(sessions)
            frames.append(_Frame(sessions, messages, later))
    frames = frames or [_Frame(*all_messages, 0)]
    return max(reversed(frames), key=lambda frame: int(frame.messages.sampled()[0].sum()))


#: How many times at which somebody began to label are tried.
_TIMES_MAX = 20


def _messages(
    tenant: str,
    follow_ups: Iterable[JudgedFollowUp],
    labels: Mapping[MessagePlace, StoredLabel],
) -> tuple[tuple[str, ...], JudgedMessages]:
    follow_ups = list(follow_ups)
    numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))
    session = np.array([numbers[each.session_id] for each in follow_ups], np.int64)
    own = [labels.get(each.place) for each in follow_ups]
    truth = [None if label is None else label.truth for label in own]
    messages = JudgedMessages(
        session=session,
        sessions=len(numbers),
        judged=np.array([each.judged for each in follow_ups], np.float64),
        truth=np.array([np.nan if value is None else value for value in truth], np.float64),
        place=np.array([draw(tenant, each.place) for each in follow_ups], np.float64),
        chosen=np.array([label is not None and not label.drawn for label in own], bool),
    )
    return tuple(numbers), messages
