"""Sessions told event by event, with or without the tokens of an engine."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock_jobs.shards.conversation.conversation import Conversation
from penstock_jobs.shards.conversation.reader import read_conversation
from penstock_jobs.shards.conversation.session_events import Event

SECOND = 1_000_000
START_US = 1_795_000_000 * SECOND


class Talk:
    """Events of one session, one second apart."""

    def __init__(self, session: str = "s-1", start: int = 0) -> None:
        self.session = session
        self.events: list[Event] = []
        self._at = start

    def add(self, kind: str, payload: Any, **fields: Any) -> "Talk":
        self._at += 1
        base = {
            "ts_us": START_US + self._at * SECOND,
            "seq": self._at,
            "type": kind,
            "event_id": f"e{self._at}",
            "payload": payload if isinstance(payload, str) else json.dumps(payload),
            "source": "by-hand",
            "checkpoint": "ckpt-1",
        }
        self.events.append(Event(**{**base, **fields}))
        return self

    def start(self, **payload: Any) -> "Talk":
        return self.add("session_start", payload)

    def user(self, text: str, **more: Any) -> "Talk":
        return self.add("user_message", {"text": text, **more})

    def model(self, text: str | None = None, *, calls: Sequence[Any] = (), **more: Any) -> "Talk":
        tool_calls = [call if isinstance(call, dict) else asks(call) for call in calls]
        payload = {"text": text, "tool_calls": tool_calls, "finish_reason": "stop", **more}
        return self.add("model_call", payload)

    def result(self, call_id: str | None, output: Any = "ok", **more: Any) -> "Talk":
        return self.add("tool_result", {"call_id": call_id, "output": output, **more})

    def conversation(self, **options: Any) -> Conversation:
        return read_conversation(self.session, self.events, **options)


def asks(call_id: str, name: str = "read", arguments: Any = '{"path":  "a.py"}') -> dict[str, Any]:
    return {"id": call_id, "name": name, "arguments": arguments}


def tokens(prompt: Sequence[int], completion: Sequence[int], **more: Any) -> dict[str, Any]:
    found = {
        "prompt_ids": list(prompt),
        "completion_ids": list(completion),
        "logprobs": [-0.5] * len(completion),
        "policy_version_runs": [[0, 7]],
    }
    return found | more


def routes(rows: int, first: int = 0) -> dict[str, Any]:
    """Of two layers and two experts a token: the first is the row's number, the second over 99."""
    numbers = np.arange(first, first + rows, dtype=np.uint8)
    values = np.stack([numbers, numbers + 100, numbers, numbers + 100], axis=1)
    data = base64.b64encode(values.tobytes()).decode()
    return {"data": data, "shape": [rows, 2, 2], "dtype": "uint8"}


def told(conversation: Conversation) -> list[list[tuple[str, str]]]:
    """Who said what, by context."""
    return [
        [(message.role, message.content) for message in context]
        for context in conversation.contexts
    ]
