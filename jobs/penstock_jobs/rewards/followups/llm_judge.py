"""The judge that asks a language model at an OpenAI-compatible address, within a budget.

Each request holds one message, so that no user's text can sway the label of another. Answers are
cached by a digest of prompt, model and content; a judgement holds no text of a user.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import sqlalchemy as sa

from penstock.backends.database.engine import Database, insert_of, now_us, portions
from penstock.backends.http.address import EgressPolicy, HttpAddress
from penstock.backends.http.client import HttpAnswer, HttpClient
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings, without_secrets
from penstock.lake.buckets import SessionId
from penstock_jobs.rewards import RewardSettings
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.followups.judge import Judgement, Message, Unjudged
from penstock_jobs.rewards.tables import judge_answer, judge_spending

AnswerT = TypeVar("AnswerT")
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)
_TRANSIENT = {408, 429, 500, 502, 503, 504, 529}
#: Statuses that all messages will get: the key, the address or the model is wrong.
_HOPELESS = {401, 402, 403, 404}
_ANSWER_BYTES_MAX = 1 << 20
_FIRST_PAUSE_SECONDS = 0.5
#: UTF-8 bytes per token, a low estimate, so that enough tokens are reserved.
_BYTES_PER_TOKEN = 2
_TOKENS_MAX = 100_000_000
_ATTEMPTS_MAX = 4
_PAUSE_SECONDS_MAX = 30.0
_ANSWER_TOKENS_MAX = 200
_PARAMETERS = (("temperature", 0),)


def open_judge(settings: Settings, database: Database, run: str) -> "LlmJudge | None":
    """Open the judge of the settings, if any. Processes of the same `run` share a budget.

    Raises InvalidInput."""
    judge = settings.room(RewardSettings)
    if not judge.judge_url:
        return None
    budget = RunBudget(database, run, judge.judge_requests_max, judge.judge_tokens_max)
    egress = EgressPolicy.for_operator(settings)
    return LlmJudge(judge, AnswerCache(database, answer_in), budget, egress)


def check_judge(definition: Definition, settings: Settings) -> None:
    """Check that settings have what the rewards need. Raises JudgeUnfit, InvalidInput."""
    judge = settings.room(RewardSettings)
    if judge.judge_url:
        _address(judge)
    for term in definition.terms:
        if term.reward.check is not None:
            term.reward.check(term.parameters, settings)


def _address(judge: RewardSettings) -> HttpAddress:
    name = f"The address of the judge, {without_secrets(judge.judge_url)!r},"
    address = HttpAddress.of(judge.judge_url, name)
    key = judge_key(judge)
    if not (key.isascii() and key.isprintable()):
        why = "it holds characters that a header cannot hold"
        raise InvalidInput(what="The key of the judge", why=why)
    return address.below("chat/completions")


def judge_key(judge: RewardSettings) -> str:
    if not judge.judge_key_file:
        return judge.judge_key
    try:
        return Path(judge.judge_key_file).read_bytes().decode("ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no key"
        what = f"The file of the judge's key, {judge.judge_key_file},"
        raise InvalidInput(what=what, why=why) from None


def judge_version(model: str, message_chars_max: int) -> str:
    """Digest all that answers depend on: the model's name, but not its address."""
    facts = [prompt_version(), model, _PARAMETERS, _ANSWER_TOKENS_MAX, message_chars_max]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


class LlmJudge:
    """Judges within the budget of one run. Safe between threads; raises DatabaseUnreachable."""

    name = "llm"

    def __init__(
        self,
        settings: RewardSettings,
        answers: "AnswerCache[Judgement]",
        budget: "RunBudget",
        egress: EgressPolicy,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._answers = settings, answers
        self._model = LanguageModel(settings, budget, egress, sleep)
        self.version = judge_version(settings.judge_model, settings.judge_message_chars_max)

    def judge(self, messages: Sequence[Message]) -> list[Judgement | Unjudged]:
        chars_max = self._settings.judge_message_chars_max
        shown = [shown_message(message, chars_max) for message in messages]
        keys = [answer_key(self.version, text) for text in shown]
        unknown = dict(zip(keys, shown, strict=True))
        answers: dict[str, Judgement | Unjudged] = dict(self._answers.get(unknown))
        unknown = {key: text for key, text in unknown.items() if key not in answers}
        with ThreadPoolExecutor(self._settings.judge_inflight_max, "judge") as pool:
            answers |= zip(unknown, pool.map(self._ask, unknown, unknown.values()), strict=True)
        # If another process stored an answer first, that one counts.
        answers |= self._answers.get(unknown)
        return [answers[key] for key in keys]

    def _ask(self, key: str, shown: str) -> Judgement | Unjudged:
        try:
            answer = answer_in(self._model.ask(prompt(), shown))
        except ModelFailure as failure:
            return failure.kind
        if answer is None:
            return "unreadable_answer"
        # Stored at once, so that a paid answer survives a kill.
        self._answers.put({key: answer})
        return answer


def answer_key(version: str, shown: str) -> str:
    return hashlib.sha256(f"{version}\n{shown}".encode(errors="surrogatepass")).hexdigest()


class LanguageModel:
    """Asks the model of the settings, within the budget of one run. Safe between threads."""

    #: After this many unsent messages in a row it gives up.
    failures_max = 3

    def __init__(
        self,
        settings: RewardSettings,
        budget: "RunBudget",
        egress: EgressPolicy,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._address = settings, _address(settings)
        self._key = judge_key(settings)
        self._budget, self._egress, self._sleep = budget, egress, sleep
        self._failures, self._given_up = 0, False

    def ask(self, system: str, user: str) -> object:
        """Return the content of the answer. Raises ModelFailure."""
        if self._given_up:
            raise ModelFailure("unreachable", "it was given up")
        try:
            content = self._completion(system, user)
        except ModelFailure as failure:
            self._failures = self._failures + 1 if failure.kind == "unreachable" else 0
            gone = failure.hopeless or self._failures >= self.failures_max
            if gone and not self._given_up:
                self._given_up = True
                import structlog

                from penstock.core.logs import configure_logs

                if not structlog.is_configured():  # a command's standard output is its answer
                    configure_logs("text")
                structlog.get_logger().warning("judge given up", why=failure.why)
            raise
        self._failures = 0
        return content

    def _completion(self, system: str, user: str) -> object:
        question = f"{system}{user}".encode(errors="surrogatepass")
        tokens = len(question) // _BYTES_PER_TOKEN + _ANSWER_TOKENS_MAX
        why = ""
        for attempt in range(_ATTEMPTS_MAX):
            if not self._budget.take(tokens):
                raise ModelFailure("budget", why)
            answer = self._send(system, user)
            if answer.status == 200:
                return self._content(answer.body, tokens)
            why = answer.problem or f"status {answer.status}"
            if answer.status or not answer.sent:  # else it may have been answered and charged
                self._budget.settle(tokens, 0)
            if answer.status and answer.status not in _TRANSIENT:
                raise ModelFailure("unreachable", why, hopeless=answer.status in _HOPELESS)
            if attempt + 1 < _ATTEMPTS_MAX:
                pause = answer.retry_after_s or _FIRST_PAUSE_SECONDS * float(2**attempt)
                self._sleep(min(pause, _PAUSE_SECONDS_MAX))
        raise ModelFailure("unreachable", why)

    def _send(self, system: str, user: str) -> HttpAnswer:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        limits = {"max_tokens": _ANSWER_TOKENS_MAX, **dict(_PARAMETERS)}
        request = {"model": self._settings.judge_model, "messages": messages, **limits}
        headers = {"Content-Type": "application/json"}
        key = self._key
        if authorization := f"Bearer {key}" if key else self._address.authorization:
            headers["Authorization"] = authorization
        body = json.dumps(request).encode()
        client = HttpClient(
            self._address,
            seconds_max=self._settings.judge_seconds_max,
            egress=self._egress,
            bytes_max=_ANSWER_BYTES_MAX,
        )
        return client.request("POST", headers, body).if_whole()

    def _content(self, answer: bytes, tokens: int) -> object:
        try:
            document = json.loads(answer)
            content = document["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ModelFailure("unreadable_answer", "no chat completion") from error
        usage = document.get("usage")
        total = usage.get("total_tokens") if isinstance(usage, dict) else None
        if isinstance(total, int) and 0 <= total <= _TOKENS_MAX:
            self._budget.settle(tokens, total)
        return content


class ModelFailure(Exception):
    def __init__(self, kind: Unjudged, why: str, *, hopeless: bool = False) -> None:
        super().__init__(why)
        self.kind, self.why, self.hopeless = kind, why, hopeless


@cache
def prompt() -> str:
    return (files("penstock_jobs.rewards.followups") / "prompt.md").read_text(encoding="utf-8")


@cache
def prompt_version() -> str:
    return hashlib.sha256(prompt().encode()).hexdigest()[:12]


def shown_message(message: Message, chars_max: int) -> str:
    """Encode a message for the model as one JSON object, so that no text can end its string."""
    facts = {
        "user_message": bounded(message.text, chars_max),
        "agent_message": bounded(message.agent, chars_max // 4),
        "earlier_user_message": bounded(message.previous, chars_max // 4),
        "agent_edited_files": message.edited,
        "tests": message.tests,
    }
    return json.dumps(facts, ensure_ascii=False)


def bounded(text: str, chars_max: int) -> str:
    """Cut out the middle of a text: users paste there, and write before or after it."""
    if len(text) <= chars_max:
        return text
    head = chars_max * 2 // 3
    return f"{text[:head]}\n[… {len(text) - chars_max} characters …]\n{text[head - chars_max :]}"


def answer_in(content: object) -> Judgement | None:
    return read_answer(content, Judgement)


def read_answer(content: object, kind: type[AnswerT]) -> AnswerT | None:
    """Read a model's answer: JSON, which may be fenced. None if it is anything else."""
    if not isinstance(content, str):
        return None
    fenced = _FENCED.match(content)
    try:
        return msgspec.json.decode(fenced[1] if fenced else content, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


class AnswerCache(Generic[AnswerT]):
    """Stored answers. What names a user's session is erased with it."""

    def __init__(self, database: Database, read: Callable[[object], AnswerT | None]) -> None:
        self._database, self._read = database, read

    def get(self, keys: Iterable[str]) -> dict[str, AnswerT]:
        answers: dict[str, AnswerT] = {}
        query = sa.select(judge_answer.c.key, judge_answer.c.answer)
        with self._database.read() as connection:
            for some in portions(keys):
                for row in connection.execute(query.where(judge_answer.c.key.in_(some))):
                    if (answer := self._read(row.answer)) is not None:
                        answers[row.key] = answer
        return answers

    def put(self, answers: Mapping[str, AnswerT], of: SessionId | None = None) -> None:
        """Store answers, with the session that they tell of."""
        place = {"tenant": of and of.tenant, "session_id": of and of.session_id}
        rows = [
            place | {"key": key, "answer": msgspec.json.encode(answer).decode()}
            for key, answer in sorted(answers.items())  # in order, against deadlocks
        ]
        if rows:
            with self._database.write() as connection:
                insert = insert_of(connection)(judge_answer).values(created_at=now_us())
                connection.execute(insert.on_conflict_do_nothing(), rows)


class RunBudget:
    """The limits of a run, shared by all its processes.

    Tokens are reserved before a request by a high estimate, and corrected by its answer."""

    def __init__(self, database: Database, run: str, requests_max: int, tokens_max: int) -> None:
        self._database, self._run = database, run
        self._requests_max, self._tokens_max = requests_max, tokens_max

    def take(self, tokens: int) -> bool:
        requests_then, tokens_then = judge_spending.c.requests + 1, judge_spending.c.tokens + tokens
        within = (requests_then <= self._requests_max) & (tokens_then <= self._tokens_max)
        update = sa.update(judge_spending).where(judge_spending.c.run == self._run, within)
        with self._database.write() as connection:
            none = insert_of(connection)(judge_spending).values(run=self._run, requests=0, tokens=0)
            connection.execute(none.on_conflict_do_nothing())
            taken = connection.execute(update.values(requests=requests_then, tokens=tokens_then))
            return taken.rowcount == 1

    def settle(self, taken: int, spent: int) -> None:
        update = sa.update(judge_spending).where(judge_spending.c.run == self._run)
        with self._database.write() as connection:
            connection.execute(update.values(tokens=judge_spending.c.tokens + (spent - taken)))
