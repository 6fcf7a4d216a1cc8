"""The judge that asks a language model behind an OpenAI-compatible address.

One message a request, several requests at the same time. Several messages in one request would be
cheaper, but then one user's text could sway the labels of others, and a cached answer would depend
on its neighbours.

An answer is paid for once: it is kept by the digest of prompt, model and content. Neither key nor
value holds any text of a user, so erasing a session leaves nothing to erase there.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog

from penstock.database.engine import Database, insert_of, now_us
from penstock.settings import Settings
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.followups.judge import LABELS, Judgement, Label, Message, Unjudged
from penstock_jobs.rewards.followups.llm_requests import (
    ChatClient,
    Endpoint,
    ModelReply,
    RunBudget,
    address_of,
    endpoint_of,
)
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.rewards.tables import judge_answer

_log = structlog.get_logger()
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)
_FIELDS = {"label", "confidence", "dissatisfied"}
#: Below what any of the databases takes in one statement.
_KEYS_PER_QUERY = 500


def open_judge(settings: Settings, database: Database, run: str) -> "LlmJudge | None":
    """The judge that the settings name, if any. All processes that name the same `run` share one
    budget, and those of all runs the answers. Nothing is sent yet. Raises InvalidInput."""
    judge = settings.room(RewardSettings)
    if not judge.judge_url:
        return None
    budget = RunBudget(database, run, judge.judge_requests_max, judge.judge_tokens_max)
    limits = JudgeLimits(
        inflight_max=judge.judge_inflight_max, message_chars_max=judge.judge_message_chars_max
    )
    return LlmJudge(endpoint_of(settings), AnswerCache(database), budget, limits)


def check_judge(definition: Definition, settings: Settings) -> None:
    """Before any work on it: whether the settings give what its rewards need, and name a judge that
    can be opened if they name one. Raises JudgeUnfit, InvalidInput."""
    if settings.room(RewardSettings).judge_url:
        address_of(endpoint_of(settings))
    for term in definition.terms:
        if term.reward.check is not None:
            term.reward.check(term.parameters, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLimits:
    #: Requests under way at the same time.
    inflight_max: int = 8
    #: Characters of a user message that are shown; its middle is left out.
    message_chars_max: int = 8_000
    #: After so many messages in a row that could not be sent, the rest is given up.
    failures_max: int = 3


class LlmJudge:
    """Good for one run: its budget is used up, not renewed. Safe between threads; raises
    DatabaseUnreachable."""

    name = "llm"

    def __init__(
        self,
        endpoint: Endpoint,
        answers: "AnswerCache",
        budget: RunBudget,
        limits: JudgeLimits | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits = limits or JudgeLimits()
        self._answers = answers
        self._client = ChatClient(endpoint, budget, sleep)
        self._failures = 0
        self._given_up = False
        self.version = version_of(endpoint, self._limits.message_chars_max)

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        shown = [shown_message(message, self._limits.message_chars_max) for message in messages]
        keys = [self._key(text) for text in shown]
        unknown = dict(zip(keys, shown, strict=True))
        answers: dict[str, ModelAnswer | Unjudged] = dict(self._answers.get(unknown))
        unknown = {key: text for key, text in unknown.items() if key not in answers}
        with ThreadPoolExecutor(self._limits.inflight_max, "judge") as pool:
            answers |= zip(unknown, pool.map(self._ask, unknown, unknown.values()), strict=True)
        # Where another process got another answer meanwhile, the first one counts.
        answers |= self._answers.get(unknown)
        return [self._judgement(answers[key]) for key in keys]

    def _key(self, shown: str) -> str:
        content = f"{self.version}\n{shown}".encode(errors="surrogatepass")
        return hashlib.sha256(content).hexdigest()

    def _ask(self, key: str, shown: str) -> "ModelAnswer | Unjudged":
        if self._given_up:
            return "unreachable"
        reply = self._client.ask(prompt(), shown)
        self._count_failures(reply)
        if reply.failure:
            return reply.failure
        answer = answer_in(reply.content)
        if answer is None:
            return "unreadable_answer"
        # At once, not at the end: what was paid for survives a kill.
        self._answers.put({key: answer})
        return answer

    def _count_failures(self, reply: ModelReply) -> None:
        """A model that is gone is not asked for every message."""
        if reply.failure != "unreachable":
            self._failures = 0
            return
        self._failures += 1
        if (reply.hopeless or self._failures >= self._limits.failures_max) and not self._given_up:
            self._given_up = True
            _log.warning("judge given up", why=reply.why)

    def _judgement(self, answer: "ModelAnswer | Unjudged") -> Judgement:
        judge = f"{self.name}@{self.version}"
        if isinstance(answer, ModelAnswer):
            return Judgement(
                judge=judge,
                label=answer.label,
                confidence=answer.confidence,
                dissatisfied=answer.dissatisfied,
            )
        return Judgement(judge=judge, label=None, confidence=0.0, dissatisfied=0.0, unjudged=answer)


# Question and answer


@cache
def prompt() -> str:
    source = files("penstock_jobs.rewards.followups") / "prompt.md"
    return source.read_text(encoding="utf-8")


@cache
def prompt_version() -> str:
    return hashlib.sha256(prompt().encode()).hexdigest()[:12]


def version_of(endpoint: Endpoint, message_chars_max: int) -> str:
    """Of what the answers depend on: the model's name, but not its address."""
    facts = [
        prompt_version(),
        endpoint.model,
        endpoint.parameters,
        endpoint.answer_tokens_max,
        message_chars_max,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def shown_message(message: Message, chars_max: int) -> str:
    """The message as the model sees it: one JSON object, in which no text can end its string."""
    return json.dumps(
        {
            "user_message": _bounded(message.text, chars_max),
            "agent_message": _bounded(message.agent, chars_max // 4),
            "earlier_user_message": _bounded(message.previous, chars_max // 4),
            "agent_edited_files": message.edited,
            "tests": message.tests,
        },
        ensure_ascii=False,
    )


def _bounded(text: str, chars_max: int) -> str:
    """The beginning and the end: what users say stands before or after what they paste."""
    if len(text) <= chars_max:
        return text
    head = chars_max * 2 // 3
    return f"{text[:head]}\n[… {len(text) - chars_max} characters …]\n{text[head - chars_max :]}"


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    label: Label
    confidence: float
    dissatisfied: float


def answer_in(content: object) -> ModelAnswer | None:
    """None unless it is one object with exactly the three fields, each in its range."""
    if not isinstance(content, str):
        return None
    fenced = _FENCED.match(content)
    try:
        answer = json.loads(fenced[1] if fenced else content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or answer.keys() != _FIELDS or answer["label"] not in LABELS:
        return None
    confidence, dissatisfied = _share(answer["confidence"]), _share(answer["dissatisfied"])
    if confidence is None or dissatisfied is None:
        return None
    return ModelAnswer(answer["label"], confidence, dissatisfied)


def _share(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)


class AnswerCache:
    """In the metadata database, shared by the processes of all runs. Its rows may be deleted: then
    the model is asked again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, keys: Iterable[str]) -> dict[str, ModelAnswer]:
        """Those that are known."""
        answers: dict[str, ModelAnswer] = {}
        query = sa.select(judge_answer.c.key, judge_answer.c.answer)
        wanted = list(keys)
        with self._database.read() as connection:
            for start in range(0, len(wanted), _KEYS_PER_QUERY):
                some = judge_answer.c.key.in_(wanted[start : start + _KEYS_PER_QUERY])
                for row in connection.execute(query.where(some)):
                    if answer := answer_in(row.answer):
                        answers[row.key] = answer
        return answers

    def put(self, answers: Mapping[str, ModelAnswer]) -> None:
        """Keeps them for good when it returns. An answer that is there stays as it is."""
        rows = [
            {"key": key, "answer": msgspec.json.encode(answer).decode()}
            for key, answer in sorted(answers.items())  # so that no two wait for each other
        ]
        if rows:
            with self._database.write() as connection:
                made = insert_of(connection)(judge_answer).values(created_at=now_us())
                connection.execute(made.on_conflict_do_nothing(), rows)
