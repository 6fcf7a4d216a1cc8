"""Hints that a language model writes: one sentence from what the other sources say of a call.

It is the model that judges follow-ups (`PENSTOCK_JUDGE_URL`), with the budget of a run for each
build. Sentences are cached, with their session, which erases them.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from importlib.resources import files

import msgspec

from penstock.backends.database.engine import Database
from penstock.backends.http.address import EgressPolicy
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.lake.buckets import SessionId
from penstock_jobs.rewards import RewardSettings
from penstock_jobs.rewards.followups.llm_judge import (
    AnswerCache,
    LanguageModel,
    ModelFailure,
    RunBudget,
    answer_key,
)
from penstock_jobs.shards.hints.hint import CallPlace, Hint, HintSource, ToldChain

NAME = "written"
_SENTENCE_CHARS_MAX = 400


@cache
def _prompt() -> str:
    return (files("penstock_jobs.shards.hints") / "prompt.md").read_text(encoding="utf-8")


def writer_version(settings: Settings) -> str:
    """Name the model and the prompt. Raises InvalidInput without a model."""
    judge = settings.room(RewardSettings)
    if not judge.judge_url:
        why = "it needs a language model: set PENSTOCK_JUDGE_URL and PENSTOCK_JUDGE_MODEL"
        raise InvalidInput(what="The source of hints `written`", why=why)
    return f"{judge.judge_model}@{hashlib.sha256(_prompt().encode()).hexdigest()[:12]}"


class HintWriter:
    """Writes hints within the budget of a build. Safe between threads."""

    def __init__(self, settings: Settings, database: Database, run: str, tenant: str) -> None:
        """Processes of the same `run` share a budget. Raises InvalidInput."""
        self._version, self._tenant = writer_version(settings), tenant
        judge = settings.room(RewardSettings)
        budget = RunBudget(database, run, judge.judge_requests_max, judge.judge_tokens_max)
        self._model = LanguageModel(judge, budget, EgressPolicy.for_operator(settings))
        self._answers: AnswerCache[str] = AnswerCache(database, _sentence_in)
        self._inflight_max = judge.judge_inflight_max
        #: Counts of unwritten hints by reason.
        self.counts: Counter[str] = Counter()

    def write(self, groups: Sequence[Sequence[Hint]]) -> list[str | None]:
        with ThreadPoolExecutor(self._inflight_max, "hints") as pool:
            answers = list(pool.map(self._write, groups))
        self.counts.update(f"written_{each.kind}" for each in answers if not isinstance(each, str))
        return [each if isinstance(each, str) else None for each in answers]

    def _write(self, hints: Sequence[Hint]) -> str | ModelFailure:
        session = SessionId(self._tenant, hints[0].session_id)
        shown = json.dumps({"remarks": [hint.text for hint in hints]}, ensure_ascii=False)
        key = answer_key(self._version, f"{session}\n{shown}")
        if (known := self._answers.get([key]).get(key)) is not None:
            return known
        try:
            content = self._model.ask(_prompt(), shown)
            sentence = " ".join(content.split()) if isinstance(content, str) else ""
            if not 0 < len(sentence) <= _SENTENCE_CHARS_MAX:
                raise ModelFailure("unreadable_answer", "no sentence")
        except ModelFailure as failure:
            return failure
        self._answers.put({key: sentence}, session)
        return sentence


def _sentence_in(stored: object) -> str | None:
    return msgspec.json.decode(stored, type=str) if isinstance(stored, str) else None


def _find(chain: ToldChain) -> Iterator[Hint]:
    said: defaultdict[tuple[CallPlace, str], list[Hint]] = defaultdict(list)
    for hint in chain.hints:
        said[hint.call, hint.session_id].append(hint)
    assert chain.write is not None  # a slice that asks for them has a writer
    for hints, text in zip(said.values(), chain.write([*said.values()]), strict=True):
        if text is not None:
            free = all(hint.answer_free for hint in hints)
            yield replace(hints[0], text=text, kind=NAME, answer_free=free)


SOURCE = HintSource(NAME, _find)
