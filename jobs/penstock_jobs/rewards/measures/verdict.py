"""The requests of sessions as rows: what others read of them."""

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.definition import Reward
from penstock_jobs.rewards.requests import RawJudgeParameters, requests_of
from penstock_jobs.rewards.rows import RewardRows, Standing, State, Target
from penstock_jobs.rewards.texts.trail import SECOND

VERDICT, STARTED, ENDED, REQUEST = (
    "request_verdict", "request_start", "request_end", "request_of_turn",
)  # fmt: skip


def request_verdict(bucket: Bucket, _parameters: RawJudgeParameters) -> pa.Table:
    """request_verdict: what users want, when they went on, and what they said of the work.

    Measures: nothing of its own; the view `requests` shows these rows. A request begins with the
    first message of a conversation, and with each that moves on.

    Formula, per request: − the worst judgement of its work, by messages, feedback and stops. The
    reason is its kind, the weight its size: √(words / 10) of the user's own words, from 1 to 4.
    `request_start` and `request_end` are seconds since 1970. Per turn, `request_of_turn` is the
    number of its request.

    Range: −1 to 0.
    pending: `request_end` of the last one. censored: nobody judged it.
    To game it: as dissatisfied_follow_up. Give it no weight.
    """
    tables = {name: RewardRows(name) for name in (VERDICT, STARTED, ENDED, REQUEST)}
    requests = requests_of(bucket)
    for each in requests.all:
        target: Target = ("request", str(each.number))
        verdict = None if each.dissatisfied is None else 0.0 - each.dissatisfied
        state: State = "censored" if verdict is None else "scored"
        ended = None if each.ended_us is None else each.ended_us / SECOND
        for name, standing in (
            (VERDICT, Standing(state, verdict, each.kind, each.size)),
            (STARTED, Standing("scored", each.started_us / SECOND)),
            (ENDED, Standing("pending" if ended is None else "scored", ended)),
        ):
            tables[name].add_standing(each.session_id, target, standing, None, each.checkpoint)
    for (session, turn), request in requests.of_turn.items():
        tables[REQUEST].add(session, ("turn", str(turn)), float(request.number))
    return pa.concat_tables([rows.table() for rows in tables.values()])


REWARDS = (Reward(VERDICT, 1, request_verdict, RawJudgeParameters),)
