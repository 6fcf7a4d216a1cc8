"""The events of a simulated session, and the time that passes in it."""

import heapq
from collections.abc import Callable
from typing import Any

import msgspec

from penstock_jobs.simulator.truth import SessionTruth

_encode = msgspec.json.Encoder().encode

Payload = dict[str, Any]


class Journal:
    """The events of a session as its client sends them, and the time that passes in it.

    `now_us` only moves forward, and what was planned for a moment happens then. `event_time_us`
    gives the time that an event bears which happens at a moment."""

    def __init__(
        self, start_us: int, event_time_us: Callable[[int], int], truth: SessionTruth
    ) -> None:
        self.now_us = start_us
        self._event_time_us = event_time_us
        #: The time that each event bears, its type, and its line.
        self.lines: list[tuple[int, str, bytes]] = []
        self._truth = truth
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    def record(self, kind: str, payload: Payload) -> None:
        number, at_us = len(self.lines), self._event_time_us(self.now_us)
        event = {
            "session_id": self._truth.session_id,
            "seq": number,
            "ts": at_us,
            "type": kind,
            "event_id": f"e{number:05}",
            "source": "simulator",
            "checkpoint": self._truth.checkpoint,
            "user": self._truth.user,
            "project": self._truth.project,
            "payload": payload,
        }
        self.lines.append((at_us, kind, _encode(event)))
        self.now_us += 1_000  # no two events of a session share a time

    def wait(self, seconds: float) -> None:
        self._advance_to(self.now_us + round(seconds * 1_000_000))

    def finish(self) -> None:
        """Let all time pass."""
        while self._plans:
            self._advance_to(self._plans[0][0])

    def plan(self, at_us: int, action: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._plans, (at_us, self._planned, action))

    def _advance_to(self, moment_us: int) -> None:
        while self._plans and self._plans[0][0] <= moment_us:
            due_us, _, action = heapq.heappop(self._plans)
            self.now_us = max(self.now_us, due_us)
            action()
        self.now_us = max(self.now_us, moment_us)
