"""The sources of hints that recipes turn on."""

import hashlib
import json
import re
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
from penstock_jobs.rewards.followups.follow_ups import outcome_of_tests
from penstock_jobs.rewards.followups.judge import THRESHOLD, Message
from penstock_jobs.rewards.followups.llm_judge import (
    AnswerCache,
    LanguageModel,
    ModelFailure,
    RunBudget,
    answer_key,
)
from penstock_jobs.rewards.followups.local_judge import local_judge
from penstock_jobs.rewards.followups.speech import SHAPES, own_words
from penstock_jobs.shards.conversation.session_events import FeedbackPayload
from penstock_jobs.shards.hints.hint import CallPlace, Hint, HintSource, Report, ToldChain
from penstock_jobs.shards.rows.token_credit import EditMark

LABEL, FOLLOW_UP, LEFT_TEXT = "label", "follow_up", "left_text"
TEST_FAILURE, TOOL_ERROR = "test_failure", "tool_error"

# Labels: feedback of a person on a call, with a comment


def _labels(chain: ToldChain) -> Iterator[Hint]:
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
            yield Hint(text, LABEL, call, session, feedback.event_id)


def _refuses(feedback: Report, comment: str) -> bool:
    """Whether it is negative. A comment without a verdict is judged by its words."""
    verdict = msgspec.convert(dict(feedback.payload), FeedbackPayload)
    if verdict.kind in ("comment", "rating"):
        [judged] = local_judge().judge([Message(text=comment)])
        return judged.dissatisfied >= THRESHOLD
    return verdict.refuses


# Follow-ups: what the user said of the work before


_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 marks of several scripts
#: Labels of sentences that say nothing of what was wrong.
_BESIDES = frozenset({"moves_on", "accepts", "asks", "abandons"})


def _follow_ups(chain: ToldChain) -> Iterator[Hint]:
    for said in chain.messages:
        event = chain.message_at(said.session_id, said.turn)
        call = chain.faulty_call(said.turn_before, said.message.text)
        if event is None or "copied" in event.flags or call is None:
            continue
        if text := correcting_words(said.message):
            text = f"The user said of this answer: {text}"
            yield Hint(text, FOLLOW_UP, call, said.session_id, event.event_id)


def correcting_words(message: Message) -> str:
    """Return the sentences of the user's own words that are about the work before.

    Pasted text is left out, and so are sentences that only praise, ask, or wish for the next."""
    words = own_words(message.text)
    sentences = [part.strip() for part in _SENTENCE.split(words) if part.strip()]
    if len(sentences) < 2:
        return words
    parts = [Message(text=part, agent=message.agent, edited=message.edited) for part in sentences]
    judged = local_judge().judge(parts)
    kept = [
        part
        for part, judgement in zip(sentences, judged, strict=True)
        if judgement.label not in _BESIDES or judgement.dissatisfied >= THRESHOLD
    ]
    return " ".join(kept) or words


# Edits by users: the lines that they left in place of the agent's


def _left_texts(chain: ToldChain) -> Iterator[Hint]:
    for session, corrections in chain.corrections.items():
        for correction in corrections:
            mark, left = correction.edit, correction.left_lines
            call = chain.call_of(session, mark)
            if left and call is not None:
                text = f"The user left this in place of what this answer wrote:\n{left}"
                yield Hint(text, LEFT_TEXT, call, session, mark.name, answer_free=False)


# Runs of tests that failed after an edit, and errors of tools


_LINES_MAX = 12
_CHARS_MAX = 1_200
_FAILS = [
    SHAPES[name] for name in ("python", "exception", "rust", "compiler", "assertion", "tests")
]
#: Errors that no other call would have avoided.
_OF_OTHERS = ("user_aborted", "provider_error", "timeout")


def _test_failures(chain: ToldChain) -> Iterator[Hint]:
    edits = {place for place, facts in chain.calls if facts.edited}
    for run in chain.reports:
        if run.type != "test_result" or outcome_of_tests(run.payload) != "failed":
            continue
        turn = chain.turn_at(run.session_id, run.ts_us)
        output = shortened(run.text("output"))
        if turn is None:
            continue
        call = chain.faulty_call(turn, output, until_us=run.ts_us)
        if call in edits:  # tests that failed before anything was edited are nobody's fault
            text = f"After the edit in this answer tests fail: {output or run.text('command')}"
            yield Hint(text, TEST_FAILURE, call, run.session_id, run.event_id)


def _tool_errors(chain: ToldChain) -> Iterator[Hint]:
    for result in chain.reports:
        error = result.text("error_class")
        if result.type != "tool_result" or result.payload.get("ok") is not False:
            continue
        mark = EditMark("", result.text("call_id") or None, result.ts_us, result.seq)
        call = chain.call_of(result.session_id, mark)
        output = shortened(result.text("output"))
        if error in _OF_OTHERS or call is None or not (output or error):
            continue
        tool = result.text("tool") or "a tool"
        why = ": ".join(part for part in (error.replace("_", " "), output) if part)
        text = f"The call of {tool} in this answer fails: {why}"
        yield Hint(text, TOOL_ERROR, call, result.session_id, result.event_id)


def shortened(output: str) -> str:
    """Return the last lines that look like failures, else the last lines of all."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if any(one.is_in(line, line.lower()) for one in _FAILS)]
    text = "\n".join((telling or lines)[-_LINES_MAX:])
    return text[-_CHARS_MAX:]


# Written: one sentence by a language model, from what the other sources say of a call
#
# It is the model that judges follow-ups (`PENSTOCK_JUDGE_URL`), with the budget of a run for each
# build. Sentences are cached, with their session, which erases them.

WRITTEN = "written"
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


def _sentences(chain: ToldChain) -> Iterator[Hint]:
    said: defaultdict[tuple[CallPlace, str], list[Hint]] = defaultdict(list)
    for hint in chain.hints:
        said[hint.call, hint.session_id].append(hint)
    assert chain.write is not None  # a slice that asks for them has a writer
    for hints, text in zip(said.values(), chain.write([*said.values()]), strict=True):
        if text is not None:
            free = all(hint.answer_free for hint in hints)
            yield replace(hints[0], text=text, kind=WRITTEN, answer_free=free)


SOURCES = {
    source.name: source
    for source in (
        HintSource(LABEL, _labels),
        HintSource(FOLLOW_UP, _follow_ups),
        HintSource(LEFT_TEXT, _left_texts, solves=True),
        HintSource(TEST_FAILURE, _test_failures),
        HintSource(TOOL_ERROR, _tool_errors),
        HintSource(WRITTEN, _sentences),
    )
}
