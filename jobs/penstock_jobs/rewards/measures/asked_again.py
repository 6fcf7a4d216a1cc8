"""The reward of requests that the user had to repeat."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, by_session
from penstock_jobs.rewards.followups.follow_ups import is_from_a_person
from penstock_jobs.rewards.measures.turns import TurnScore, score_turns
from penstock_jobs.rewards.reward import Reward

_WORD = re.compile(r"[^\W\d_]\w*|\d\w+")
#: Scripts that put no space between words: two characters in a row are one.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{2,}")
#: Of a longer message the beginning is looked at: what follows is mostly pasted.
_CHARS_MAX = 4_000
#: Shorter words are everywhere.
_WORD_MIN = 3


@dataclass(frozen=True)
class RequestParameters:
    """A request of fewer characters than `chars_min`, in words, says too little to be repeated;
    `free_share` of it may come again in any next message about the same files."""

    chars_min: int = 20
    free_share: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.free_share < 1:
            raise ValueError("free_share has to be in [0, 1)")


def asked_again(bucket: Bucket, parameters: RequestParameters) -> pa.Table:
    """asked_again: did the user have to ask for the same again.

    Measures: whether the work was done, by the user's next request. Who asks for what was asked
    before did not get it, or not all of it, in whatever tone they say so.

    Formula, per turn that the agent acted in and that a message followed: share = length of the
    words of the turn's request that the next message says again / length of all its words. Words
    are those of three characters or more, each once; in scripts without spaces two characters in a
    row. Above `free_share`,

        value = − (share − free_share) / (1 − free_share)

    A session is the mean of its turns.

    Range: −1, all of it, to 0.
    pending: never. censored: `silence`, no message followed; `short_request`, it says too little.
    Turns in which the agent did nothing, and those without a request, have no row. What a subagent
    is told is no message of the user.
    To game it: ask the user for something else at the end, so that the next message is about that;
    read it beside `asked_instead`. Somebody who asks again in other words is not noticed, and one
    who names many same things in a new request is.
    """
    scores: dict[tuple[str, int], TurnScore] = {}
    columns = ("turn", "text", "model_calls", "tool_calls", "edits")
    for session, rows in by_session(bucket.turns, *columns).items():
        request: set[str] | None = None
        acted: int | None = None
        for row in sorted(rows, key=lambda row: row["turn"]):
            text = row["text"]
            if text is not None and is_from_a_person(text):
                words = set(words_of(text))
                if acted is not None and request is not None and not bucket.is_subagent(session):
                    scores[session, acted] = _score(request, words, parameters)
                request, acted = words, None
            if request is not None and (row["model_calls"] or row["tool_calls"] or row["edits"]):
                acted = row["turn"]
                scores[session, acted] = TurnScore(None, "silence")
    return score_turns(
        "asked_again", bucket, lambda turn: scores.get((turn["session_id"], turn["turn"]))
    )


def words_of(text: str) -> Iterator[str]:
    text = text[:_CHARS_MAX].lower()
    for run in _UNSPACED.findall(text):
        yield from (run[at : at + 2] for at in range(len(run) - 1))
    for word in _WORD.findall(_UNSPACED.sub(" ", text)):
        if len(word) >= _WORD_MIN:
            yield word


def _score(request: set[str], words: set[str], parameters: RequestParameters) -> TurnScore:
    whole = sum(map(len, request))
    if whole < parameters.chars_min:
        return TurnScore(None, "short_request")
    share = sum(map(len, request & words)) / whole
    excess = max(share - parameters.free_share, 0.0)
    return TurnScore(0.0 - excess / (1 - parameters.free_share))


REWARDS = (Reward("asked_again", 1, asked_again, RequestParameters),)
