"""The events of a session as its client sends them, and time as it goes by in it."""

import heapq
from collections.abc import Callable
from typing import Any

import msgspec

SOURCE = "simulator"
_encode = msgspec.json.Encoder().encode

Payload = dict[str, Any]


class Journal:
    """`now_us` only moves forward, and what was planned for a moment happens then. `told_us` says
    which time an event bears that happens at a moment."""

    def __init__(self, start_us: int, told_us: Callable[[int], int], **facts: str) -> None:
        self.now_us = start_us
        self._told_us = told_us
        #: The time that each event bears, its type, and its line.
        self.lines: list[tuple[int, str, bytes]] = []
        self._facts = facts
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    def record(self, kind: str, payload: Payload) -> None:
        number, at_us = len(self.lines), self._told_us(self.now_us)
        event = {
            "session_id": self._facts["session_id"],
            "seq": number,
            "ts": at_us,
            "type": kind,
            "event_id": f"e{number:05}",
            "source": SOURCE,
            "checkpoint": self._facts["checkpoint"],
            "user": self._facts["user"],
            "project": self._facts["project"],
            "payload": payload,
        }
        self.lines.append((at_us, kind, _encode(event)))
        self.now_us += 1_000  # no two events of a session share a time

    def wait(self, seconds: float) -> None:
        self._until(self.now_us + round(seconds * 1_000_000))

    def finish(self) -> None:
        """Let all time pass."""
        while self._plans:
            self._until(self._plans[0][0])

    def plan(self, at_us: int, deed: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._plans, (at_us, self._planned, deed))

    def _until(self, moment_us: int) -> None:
        while self._plans and self._plans[0][0] <= moment_us:
            due_us, _, deed = heapq.heappop(self._plans)
            self.now_us = max(self.now_us, due_us)
            deed()
        self.now_us = max(self.now_us, moment_us)
