"""Rewards that others reported: verifiers, graders, environments, tests and people."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.definition import Reward
from penstock_jobs.rewards.measures.turns import TurnScore, mean
from penstock_jobs.rewards.rows import RewardRows, Target, payload_fields, row_tuples

#: The name under which ratings of people count.
RATING = "rating"


@dataclass(frozen=True)
class ReportedParameters:
    """`name` is the name that was reported; without one, all names count alike."""

    name: str = ""


class Report(NamedTuple):
    session: str
    target: Target
    name: str
    value: Any


def reported_reward(bucket: Bucket, parameters: ReportedParameters) -> pa.Table:
    """reported_reward: what a verifier, a grader, an environment or a person said it was worth.

    Measures: events `x_reward` with `name`, `value` and perhaps `call_id` or `turn`, as importers
    write them and any producer may; and ratings, under the name `rating`. The term
    `reported_reward(NAME)` counts one name, `reported_reward` all of them.

    Formula, per session, turn and model call that was given a value: the value, true as 1 and false
    as 0; of several under one name the last, of several names the mean. Each choice of an answer is
    a call of its own. A session without a value of its own is the mean of its turns and calls.

    Range: as reported. Without NAME only values from −1 to 1 count.
    pending: never. censored: `no_number`; `other_scale`, a value outside −1 to 1 without NAME.
    What nobody gave a value has no row.
    To game it: whatever games the verifier. Who may send events may send this one.
    """
    name = f"reported_reward({parameters.name})" if parameters.name else "reported_reward"
    latest: defaultdict[tuple[str, Target], dict[str, Any]] = defaultdict(dict)
    for report in _reports(bucket):
        if parameters.name in ("", report.name):
            latest[report.session, report.target][report.name] = report.value
    calls = row_tuples(bucket.model_calls, "session_id", "call_id", "checkpoint")
    checkpoints = {(session, call): checkpoint for session, call, checkpoint in calls}
    rows = RewardRows(name)
    of_session: dict[str, dict[Target, TurnScore]] = {}
    for (session, target), values in sorted(latest.items()):
        score = _together(values.values(), any_scale=bool(parameters.name))
        of_session.setdefault(session, {})[target] = score
    for session, scores in of_session.items():
        own: Target = ("session", session)
        whole = scores.pop(own, None) or mean(list(scores.values()))
        rows.add(session, own, whole.value, whole.reason)
        for target, score in scores.items():
            checkpoint = checkpoints.get((session, target[1]))
            rows.add(session, target, score.value, score.reason, checkpoint=checkpoint)
    return rows.table()


def _reports(bucket: Bucket) -> Iterator[Report]:
    """Yield reports in the order of their times."""
    events = bucket.events.filter(pc.equal(bucket.events["type"], "x_reward"))
    calls = set(row_tuples(bucket.model_calls, "session_id", "call_id"))
    found: list[tuple[int, Report]] = []
    for session, ts, payload in row_tuples(events, "session_id", "ts", "payload"):
        said = payload_fields(payload)
        target = _target(session, said.get("call_id"), said.get("turn"), calls)
        name = str(said.get("name") or "reward")
        found.append((ts, Report(session, target, name, said.get("value"))))
    ratings = bucket.feedback.filter(pc.equal(bucket.feedback["kind"], "rating"))
    for session, ts, call, value in row_tuples(
        ratings, "session_id", "ts", "target", "value_number"
    ):
        found.append((ts, Report(session, _target(session, call, None, calls), RATING, value)))
    found.sort(key=lambda each: each[0])
    return (report for _, report in found)


def _target(session: str, call: object, turn: object, calls: set[tuple[Any, ...]]) -> Target:
    if (session, call) in calls:
        return "model_call", str(call)
    if isinstance(turn, int) and not isinstance(turn, bool):
        return "turn", str(turn)
    return "session", session


def _together(values: Iterable[Any], *, any_scale: bool) -> TurnScore:
    numbers = [
        float(value) for value in values if isinstance(value, int | float) and isfinite(value)
    ]
    known = [value for value in numbers if any_scale or -1 <= value <= 1]
    if known:
        return TurnScore(sum(known) / len(known))
    return TurnScore(None, "other_scale" if numbers else "no_number")


REWARDS = (Reward("reported_reward", 1, reported_reward, ReportedParameters, argument="name"),)
