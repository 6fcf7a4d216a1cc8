"""Hints from labels: feedback of a person on a call, with a comment."""

from collections.abc import Iterator

import msgspec

from penstock_jobs.rewards.followups.judge import THRESHOLD, Message
from penstock_jobs.rewards.followups.local_judge import local_judge
from penstock_jobs.shards.conversation.session_events import FeedbackPayload
from penstock_jobs.shards.hints.hint import Hint, HintSource, Report, ToldChain

NAME = "label"


def _find(chain: ToldChain) -> Iterator[Hint]:
    for feedback in chain.reports:
        comment = feedback.text("comment")
        if feedback.type != "feedback" or not comment or not _refuses(feedback, comment):
            continue
        session, target = feedback.session_id, feedback.text("target")
        call = chain.call_named(session, target) if target else None
        if call is None and (turn := chain.turn_at(session, feedback.ts_us)) is not None:
            call = chain.faulty_call(turn, comment, until_us=feedback.ts_us)
        if call is not None:
            text = f"A person who read this answer said: {comment}"
            yield Hint(text, NAME, call, session, feedback.event_id)


def _refuses(feedback: Report, comment: str) -> bool:
    """Whether it is negative. A comment without a verdict is judged by its words."""
    verdict = msgspec.convert(dict(feedback.payload), FeedbackPayload)
    if verdict.kind in ("comment", "rating"):
        [judged] = local_judge().judge([Message(text=comment)])
        return judged.dissatisfied >= THRESHOLD
    return verdict.refuses


SOURCE = HintSource(NAME, _find)
