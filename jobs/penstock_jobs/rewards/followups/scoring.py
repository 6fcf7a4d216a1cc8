"""From judged follow-ups to the rows of a reward: the same whoever judges."""

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.followups.finding import EVENT_TYPES, Tables, follow_ups, silences
from penstock_jobs.rewards.followups.judging import Judge
from penstock_jobs.rewards.rows import Bucket
from penstock_jobs.rewards.turn_facts import Score, score_turns

_Scores = dict[tuple[str, int], Score]


def score_follow_ups(
    name: str, bucket: Bucket, judge: Judge, no_train: Collection[str] = ()
) -> pa.Table:
    """− the probability of dissatisfied of each turn that the agent acted in, as the judge sees
    it, and of its session. Messages of the sessions `no_train` are not shown to the judge."""
    events = bucket.events.filter(pc.is_in(bucket.events["type"], pa.array(EVENT_TYPES)))
    tables = Tables(
        turns=bucket.turns, model_calls=bucket.model_calls, edits=bucket.edits, events=events
    )
    scores = _judged(tables, judge, no_train) | _silent(tables)
    return score_turns(name, bucket, lambda turn: scores.get(_key(turn)))


def _judged(tables: Tables, judge: Judge, no_train: Collection[str]) -> _Scores:
    found = follow_ups(tables)
    shown = [one for one in found if one.session_id not in no_train]
    scores: _Scores = {
        (one.session_id, one.turn_before): Score(None, "no_train")
        for one in found
        if one.session_id in no_train
    }
    judgements = judge.judge([one.message for one in shown])
    for one, judgement in zip(shown, judgements, strict=True):
        if judgement.unjudged is not None:
            score = Score(None, judgement.unjudged)
        else:
            score = Score(0.0 - judgement.dissatisfied)
        turn = (one.session_id, one.target_turn(judgement))
        scores[turn] = min(scores.get(turn, score), score, key=_badness)
    return scores


def _silent(tables: Tables) -> _Scores:
    return {
        (one.session_id, one.turn): Score(-1.0) if one.evidence else Score(None, "silence")
        for one in silences(tables)
    }


def _badness(score: Score) -> float:
    """What is not known is no worse than what is."""
    return 1.0 if score.value is None else score.value


def _key(turn: dict[str, Any]) -> tuple[str, int]:
    return turn["session_id"], turn["turn"]
