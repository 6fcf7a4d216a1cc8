"""Labels by a language model.

One message a request, several requests at the same time. Several messages in one request would be
cheaper, but then one user's text could sway the labels of others, and a cached answer would depend
on its neighbours.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from penstock_jobs.rewards.followups.judging import Judgement, Message, Unjudged
from penstock_jobs.rewards.followups.llm.answers import (
    Answer,
    answer_in,
    asked,
    prompt,
)
from penstock_jobs.rewards.followups.llm.asking import Asker, Reply
from penstock_jobs.rewards.followups.llm.budget import Budget
from penstock_jobs.rewards.followups.llm.caching import Cache
from penstock_jobs.rewards.followups.llm.endpoint import Endpoint, version_of

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one judge."""

    #: Requests under way at the same time.
    inflight_max: int = 8
    #: Characters of a user message that are shown; its middle is left out.
    message_chars_max: int = 8_000
    #: Messages in a row that could not be asked before the rest is given up.
    failures_max: int = 3


class LlmJudge:
    """Good for one run: its budget is used up, not renewed. Safe between threads; raises what
    cache and budget raise, DatabaseUnreachable."""

    name = "llm"

    def __init__(
        self,
        endpoint: Endpoint,
        cache: Cache,
        budget: Budget,
        limits: Limits | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits = limits or Limits()
        self._cache = cache
        self._asker = Asker(endpoint, budget, sleep)
        self._failures = 0
        self._given_up = False
        self.version = version_of(endpoint, self._limits.message_chars_max)

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        shown = [asked(message, self._limits.message_chars_max) for message in messages]
        keys = [self._key(text) for text in shown]
        unasked = dict(zip(keys, shown, strict=True))
        answers: dict[str, Answer | Unjudged] = dict(self._cache.get(unasked))
        unasked = {key: text for key, text in unasked.items() if key not in answers}
        with ThreadPoolExecutor(self._limits.inflight_max, "judge") as pool:
            answers |= zip(unasked, pool.map(self._ask, unasked, unasked.values()), strict=True)
        # Where another process was told something else meanwhile, the first answer counts.
        answers |= self._cache.get(unasked)
        return [self._judgement(answers[key]) for key in keys]

    def _key(self, shown: str) -> str:
        content = f"{self.version}\n{shown}".encode(errors="surrogatepass")
        return hashlib.sha256(content).hexdigest()

    def _ask(self, key: str, shown: str) -> Answer | Unjudged:
        if self._given_up:
            return "unreachable"
        reply = self._asker.ask(prompt(), shown)
        self._learn(reply)
        if reply.failure:
            return reply.failure
        answer = answer_in(reply.content)
        if answer is None:
            return "unreadable_answer"
        # At once, not at the end: what was paid for survives a kill.
        self._cache.put({key: answer})
        return answer

    def _learn(self, reply: Reply) -> None:
        """A model that is gone is not asked for every message."""
        if reply.failure != "unreachable":
            self._failures = 0
            return
        self._failures += 1
        if (reply.hopeless or self._failures >= self._limits.failures_max) and not self._given_up:
            self._given_up = True
            _log.warning("judge given up", why=reply.why)

    def _judgement(self, answer: Answer | Unjudged) -> Judgement:
        judge = f"{self.name}@{self.version}"
        if isinstance(answer, Answer):
            return Judgement(
                judge=judge,
                label=answer.label,
                confidence=answer.confidence,
                dissatisfied=answer.dissatisfied,
            )
        return Judgement(judge=judge, label=None, confidence=0.0, dissatisfied=0.0, unjudged=answer)
