"""The kind of work that a request wants, told by the user's words alone."""

from collections.abc import Sequence
from functools import cache
from typing import Literal, get_args

import numpy as np

from penstock_jobs.rewards.followups.features import FeatureRows, columns, features
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.local_judge import KIND_WORDS, AnswerMemory, committed_model
from penstock_jobs.rewards.followups.speech import SPEECH_WORD, lexicon, speech_of

Kind = Literal["code", "tests", "docs", "deletion", "question", "terminal"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Below this probability the judge is unsure, and the request counts as code.
_SURE = 0.4
#: A group among the first words counts again: most requests begin with what to do.
_OPENING_WORDS = 3


def request_kind(texts: Sequence[str]) -> list[Kind]:
    """Tell the kinds of requests by their opening messages, in order."""
    return _memory().answers(texts)


@cache
def _memory() -> AnswerMemory[str, Kind]:
    return AnswerMemory(_kinds)


def _kinds(texts: Sequence[str]) -> list[Kind]:
    chances = committed_model().kinds.probabilities(kind_features(texts))
    return [
        KINDS[number] if sure >= _SURE else "code"
        for number, sure in zip(chances.argmax(axis=1), chances.max(axis=1), strict=True)
    ]


def kind_columns() -> int:
    count = len(lexicon(KIND_WORDS).names)
    return columns() + 3 * count + count * count


def kind_features(texts: Sequence[str]) -> FeatureRows:
    """Return the judge's features and, after them, features of the words of kinds."""
    known = features([Message(text=text) for text in texts])
    own = [(row, column) for row, text in enumerate(texts) for column in _own_columns(text)]
    row, column = np.array(own, np.int32).reshape(-1, 2).T
    value = np.concatenate([known.value, np.ones(len(own), np.float32)])
    row, column = np.concatenate([known.row, row]), np.concatenate([known.column, column])
    return FeatureRows(len(texts), row, column, value)


def _own_columns(text: str) -> list[int]:
    words_list, said = lexicon(KIND_WORDS), speech_of(text).text
    hits = words_list.hits(SPEECH_WORD.findall(said), said)
    count, groups = len(words_list.names), {hit.group for hit in hits}
    places = groups | {count + hit.group for hit in hits if hit.at < _OPENING_WORDS}
    if hits:
        places.add(2 * count + min(hits, key=lambda hit: hit.at).group)
    places |= {3 * count + one * count + other for one in groups for other in groups if one < other}
    return [columns() + place for place in sorted(places)]
