"""Rewards as Penstock computes them, beside what the simulator knows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import Definition, find_definition, parse_definition
from penstock_jobs.rewards.followups.dissatisfaction import MeanDifference
from penstock_jobs.rewards.rates import Values, welch
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.simulator.journal import SimulatedSession
from penstock_jobs.simulator.policy import POLICIES
from penstock_jobs.simulator.production import Checkpoint, Production
from penstock_jobs.simulator.truth import SessionTruth
from tests.support.lakes import hand_lake

HORIZON_S = 600
#: How often an interval may miss the truth.
ALPHA = 0.05

#: The default definition, at the simulator's horizons too, and beside it what blame would say.
HORIZONS = "[parameters]\nhorizons_s = [0, 600, 3600, 86400]\n\n"
LINES = '\n[[reward]]\nname = "line_survival"\nhorizon_s = 600\n'
#: Persistence alone.
QUICK = parse_definition(
    """
    name = "quick"
    [parameters]
    horizons_s = [600]
    [[reward]]
    name = "edit_persistence"
    weight = 1.0
    horizon_s = 600
    """,
    "quick",
)
CURRENT = "select * from rewards where superseded_at is null"
#: After all that the simulator's sessions will ever say.
LATER_US = 10 * 86_400_000_000


@dataclass(frozen=True)
class Measured:
    """`edits` and `sessions` are of edit_persistence, `lines` of line_survival: by session and
    target, or session, and by horizon the state, the value and the reason."""

    edits: dict[tuple[str, str, int], tuple[str, float | None, str | None]]
    lines: dict[tuple[str, str, int], tuple[str, float | None, str | None]]
    sessions: dict[tuple[str, int], float]
    #: Kind and reason, by session.
    outcomes: dict[str, tuple[str, str | None]]
    #: By session and request, how likely dissatisfied.
    dissatisfied: dict[tuple[str, str], float]
    #: The whole reward of a session.
    worth: dict[str, float]


def whole_definition() -> Definition:
    text = find_definition().text
    at = text.index("[[reward]]")
    return parse_definition(text[:at] + HORIZONS + text[at:] + LINES, "simulated")


def measure(
    directory: Path, lived: Iterable[SimulatedSession], definition: Definition | None = None
) -> Measured:
    """A lake of these sessions, and the rewards of all of them."""
    definition = definition or whole_definition()
    with hand_lake(directory) as lake:
        for body in _bodies(lived):
            lake.send(body)
        lake.writer().drain()
        last_us = lake.rows("select max(epoch_us(ts)) as last from events")[0]["last"]
        run(lake.lake, InlineExecutor(), RunRequest(definition), now_us=last_us + LATER_US)
        rows = lake.rows(f"""select session_id, target_kind, target_id, name, horizon_s, state,
            value, reason from ({CURRENT}) where name in ('edit_persistence', 'line_survival',
            'dissatisfied_follow_up', 'reward')
            and target_kind in ('edit', 'request', 'session')""")
        outcomes = lake.rows("select session_id, outcome, reason from outcomes")
    return _measured(rows, outcomes)


def _bodies(lived: Iterable[SimulatedSession]) -> Iterable[bytes]:
    for one in lived:
        yield b"\n".join(line for _, _, line in one.lines)


def _measured(rows: list[dict[str, Any]], outcomes: list[dict[str, Any]]) -> Measured:
    found = Measured({}, {}, {}, {}, {}, {})
    for row in rows:
        session, kind, name = row["session_id"], row["target_kind"], row["name"]
        known = (row["state"], row["value"], row["reason"])
        if kind == "edit" and name in ("edit_persistence", "line_survival"):
            of = found.edits if name == "edit_persistence" else found.lines
            of[session, row["target_id"], row["horizon_s"]] = known
        elif kind == "session" and name == "edit_persistence" and row["value"] is not None:
            found.sessions[session, row["horizon_s"]] = row["value"]
        elif kind == "session" and name == "reward" and row["value"] is not None:
            found.worth[session] = row["value"]
        elif kind == "request" and name == "dissatisfied_follow_up" and row["value"] is not None:
            found.dissatisfied[session, row["target_id"]] = -row["value"]
    for row in outcomes:
        found.outcomes[row["session_id"]] = (row["outcome"], row["reason"])
    return found


def errors(measured: Measured, lived: Iterable[SimulatedSession]) -> Values:
    """Of the persistence of each edit at each horizon at which both know it: measured − true."""
    pairs = [
        (value, true[0])
        for one in lived
        for edit in one.truth.edits
        for horizon_s, true in edit.survival.items()
        for _, value, _ in [
            measured.edits.get((one.truth.session_id, edit.edit_id, horizon_s), ("", None, None))
        ]
        if value is not None and true is not None
    ]
    return np.array([value - true for value, true in pairs])


def true_persistence(one: SessionTruth, horizon_s: int) -> float | None:
    """Of a session, as rewards put it together: the mean of its edits, weighted by the square
    root of what they wrote, of those at which somebody looked."""
    known = [
        (edit.survival[horizon_s], sqrt(edit.written_chars))
        for edit in one.edits
        if horizon_s in edit.looked
    ]
    values = [(found[0], weight) for found, weight in known if found is not None]
    if not values:
        return None
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)


@dataclass(frozen=True)
class Pair:
    """Two checkpoints, and what is true of the difference of the second from the first."""

    checkpoints: tuple[Checkpoint, Checkpoint]
    persistence: float
    negative: float

    @classmethod
    def of(cls, before: str, after: str, sessions: int) -> "Pair":
        """By so many sessions of their own, of which only the truth is looked at."""
        pair = (Checkpoint("before", POLICIES[before]), Checkpoint("after", POLICIES[after]))
        found = [_true_means(one, sessions) for one in pair]
        (persistence, negative), (other_persistence, other_negative) = found
        return cls(pair, other_persistence - persistence, other_negative - negative)

    def tried(self, directory: Path, seeds: Sequence[int], sessions: int) -> "Iterator[Covered]":
        """For each seed, whether the intervals hold the truth, with so many sessions. The sessions
        of all seeds share a lake."""
        lived = {
            seed: [
                one
                for some in Production(seed, self.checkpoints).sessions(sessions)
                for one in some
            ]
            for seed in seeds
        }
        measured = measure(directory, chain.from_iterable(lived.values()), QUICK)
        for of_seed in lived.values():
            yield self.covered(measured, of_seed)

    def covered(self, measured: Measured, lived: Sequence[SimulatedSession]) -> "Covered":
        """Whether the intervals of the differences hold the truth."""
        parents = [one.truth for one in lived if one.truth.parent_session is None]
        kept, ended = [], []
        for checkpoint in self.checkpoints:
            ids = [one.session_id for one in parents if one.checkpoint == checkpoint.name]
            known = [measured.sessions.get((one, HORIZON_S)) for one in ids]
            kept.append(_values(one for one in known if one is not None))
            ended.append(_values(measured.outcomes[one][0] == "negative_by_rule" for one in ids))
        return Covered(
            _holds(welch(kept[0], kept[1], ALPHA), self.persistence),
            _holds(welch(ended[0], ended[1], ALPHA), self.negative),
        )


class Covered(NamedTuple):
    persistence: bool
    negative: bool


def _true_means(checkpoint: Checkpoint, sessions: int) -> tuple[float, float]:
    lived = Production(987_654_321, (checkpoint,)).sessions(sessions)
    truths = [some[0].truth for some in lived]
    kept = [true_persistence(one, HORIZON_S) for one in truths]
    negative = [one.outcome == "negative_by_rule" for one in truths]
    return float(np.mean([one for one in kept if one is not None])), float(np.mean(negative))


def _holds(found: MeanDifference, true: float) -> bool:
    return found.interval[0] <= true <= found.interval[1]


def _values(found: Iterable[float]) -> Values:
    return np.array(list(found), np.float64)
