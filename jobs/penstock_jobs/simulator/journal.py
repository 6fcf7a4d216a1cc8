"""The journal of a session's events, and the calls of the agent's model in it."""

import heapq
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock_jobs.simulator import policy as ids
from penstock_jobs.simulator.files import closing_answer, lead_in, spoken, thinking
from penstock_jobs.simulator.grammar import Dice, Names
from penstock_jobs.simulator.policy import Policy
from penstock_jobs.simulator.truth import SessionTruth
from penstock_jobs.simulator.users import Words

_PROMPT_TOKENS_MAX = 110
_encode = msgspec.json.Encoder().encode

Payload = dict[str, Any]


class SimulatedSession:
    """A session's events as its client sends them, and its truth.

    `now_us` only moves forward; `event_time_us` maps it to the time of events."""

    def __init__(
        self, start_us: int, event_time_us: Callable[[int], int], truth: SessionTruth
    ) -> None:
        self.now_us = start_us
        self._event_time_us = event_time_us
        #: Time, type and line of each event.
        self.lines: list[tuple[int, str, bytes]] = []
        self.truth = truth
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    def record(self, kind: str, payload: Payload) -> None:
        number, at_us = len(self.lines), self._event_time_us(self.now_us)
        event = {
            "session_id": self.truth.session_id,
            "seq": number,
            "ts": at_us,
            "type": kind,
            "event_id": f"e{number:05}",
            "source": "simulator",
            "checkpoint": self.truth.checkpoint,
            "user": self.truth.user,
            "project": self.truth.project,
            "payload": payload,
        }
        self.lines.append((at_us, kind, _encode(event)))
        self.now_us += 1_000  # no two events of a session share a time

    def wait(self, seconds: float) -> None:
        self._advance_to(self.now_us + round(seconds * 1_000_000))

    def finish(self) -> None:
        while self._plans:
            self._advance_to(self._plans[0][0])

    def plan(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something so many seconds from now."""
        self._planned += 1
        at_us = self.now_us + round(seconds * 1_000_000)
        heapq.heappush(self._plans, (at_us, self._planned, action))

    def _advance_to(self, moment_us: int) -> None:
        while self._plans and self._plans[0][0] <= moment_us:
            due_us, _, action = heapq.heappop(self._plans)
            self.now_us = max(self.now_us, due_us)
            action()
        self.now_us = max(self.now_us, moment_us)


class ModelCalls:
    """The agent's model in a session: its prompt, what it samples, and the tools that it calls."""

    def __init__(self, key: str, journal: "SimulatedSession", policy: Policy) -> None:
        self.journal, self.policy = journal, policy
        self._dice = Dice(f"talk:{key}")
        self._prompt = [ids.SYSTEM]
        self._samples = 0
        #: Whether the tool understood each call, and whether an edit followed the last.
        self.understood: list[bool] = []
        self.edited_last = False

    @property
    def last(self) -> str:
        return f"gen-{self._samples}"

    def hear(self, words: Words) -> None:
        self.journal.record("user_message", {"text": words.text})
        self.journal.truth.messages.append(words.label)
        self.journal.truth.about.append(words.about)
        self._prompt += [ids.USER, *ids.word_ids(words.text)]

    def say(self, token: int, prompt_end: int, text: str) -> None:
        self.journal.wait(self._dice.skewed(2, 20))
        self._sample(token, prompt_end, {"text": text})

    def close(self, names: Names, says: str = "") -> None:
        """Close a turn with an answer."""
        self.say(ids.ANSWER, ids.CLOSING, self.answer(names, says))

    def answer(self, names: Names, says: str = "") -> str:
        # A question mark would count as asking the user.
        text = closing_answer(self._dice, names).replace("?", ".")
        return f"{text}\n\n{says}" if says else text

    def call(
        self,
        names: Names,
        tool: str,
        arguments: Mapping[str, str],
        token: int = ids.LOOK,
        prompt_end: int = ids.LOOKING,
    ) -> str:
        call_id = f"call-{len(self.understood) + 1}"
        calls = [{"id": call_id, "name": tool, "arguments": dict(arguments)}]
        content = {"text": lead_in(self._dice, names), "tool_calls": calls}
        self._sample(token, prompt_end, content)
        return call_id

    def result(self, call: str, tool: str, output: str, error: str | None = None) -> None:
        payload: Payload = {"call_id": call, "tool": tool, "ok": error is None}
        if error is not None:
            payload["error_class"] = error
        self.journal.record("tool_result", payload | {"output": output})
        self._prompt += [ids.RESULT if error is None else ids.FAILED, *ids.word_ids(output)[:8]]
        self.understood.append(error is None)
        self.edited_last = False

    def compact(self, names: Names) -> None:
        """Sum up the session if the prompt has become long."""
        if (size := len(self._prompt)) <= _PROMPT_TOKENS_MAX:
            return
        recap = spoken("recap", self._dice, names)
        self.say(ids.SUMMARY, ids.COMPACTING, f"{recap} {thinking(self._dice, names, 4)}")
        self._prompt = [ids.SYSTEM, ids.SUMMARY, ids.END]
        sizes = {"tokens_before": size, "tokens_after": len(self._prompt)}
        summary = {"summary_call_id": self.last}
        self.journal.record("compaction", {"trigger": "context_limit"} | sizes | summary)

    def _sample(self, token: int, prompt_end: int, content: Payload) -> None:
        self._prompt.append(prompt_end)
        sampled = [token, ids.END]
        befores = [prompt_end, token]
        self._samples += 1
        payload = {
            "call_id": self.last,
            "model": self.journal.truth.checkpoint,
            **content,
            "usage": {"prompt": len(self._prompt), "completion": len(sampled)},
            "latency_ms": self._dice.skewed(300, 9_000),
            "finish_reason": "tool_calls" if "tool_calls" in content else "stop",
            "sampling": ids.SAMPLING,
            "tokens": {
                "prompt_ids": self._prompt,
                "completion_ids": sampled,
                "logprobs": list(map(self.policy.log_probability, befores, sampled)),
                "tokenizer": ids.TOKENIZER,
                "policy_version_runs": [[0, self.policy.version]],
            },
        }
        self.journal.record("model_call", payload)
        self._prompt += sampled
