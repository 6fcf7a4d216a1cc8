"""The events of one session as its client would send them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.vocabulary import NOUNS

Event = dict[str, Any]
Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Client:
    """A producer of events, and how it names them."""

    name: str
    versions: tuple[str, ...]
    source: str
    #: `random` and `counter` send an event_id, `keyed` a source_key instead.
    naming: str


# As often as it is met in production.
CLIENTS = (
    *[Client("harbor-editor", ("4.11.2", "4.12.0", "4.12.1"), "harbor-editor", "random")] * 9,
    *[Client("quill-cli", ("0.38.1", "0.39.0", "0.40.0-rc1"), "quill-cli", "random")] * 7,
    *[Client("merge-bot", ("2026.10", "2026.11"), "ci", "counter")] * 3,
    Client("transcript-import", ("1.3",), "transcripts", "keyed"),
)


@dataclass(frozen=True, slots=True)
class Who:
    """What every event of a session says about where it comes from."""

    session_id: str
    user: str
    project: str
    client: Client


class Recorder:
    """Stamps events with time, sequence and identity.

    `start` is naive and in UTC; `now_ms` is the time since then and only moves forward.
    """

    def __init__(self, dice: Dice, who: Who, start: datetime, checkpoint: str) -> None:
        self.events: list[Event] = []
        self.now_ms = 0
        self.checkpoint = checkpoint
        self._dice = dice
        self._who = who
        self._start = start

    def record(self, kind: str, payload: Payload) -> None:
        dice, who = self._dice, self._who
        moment = self._start + timedelta(
            milliseconds=self.now_ms, microseconds=dice.between(0, 998)
        )
        self.now_ms += 1  # so that no two events of a session share a time
        if dice.chance(0.02):
            payload |= self._unknown_fields()
        self.events.append(
            {
                "session_id": who.session_id,
                "seq": len(self.events),
                "ts": moment.isoformat(timespec="microseconds") + "Z",
                "type": kind,
                **self._identity(),
                "source": who.client.source,
                "checkpoint": self.checkpoint,
                "user": who.user,
                "project": who.project,
                "payload": payload,
            }
        )

    def _identity(self) -> Mapping[str, str]:
        draw = self._dice.random()
        if draw < 0.007:
            return {}  # known by its content alone
        if self._who.client.naming == "keyed" or draw < 0.02:
            return {"source_key": f"{self._who.client.source}:{len(self.events) + 1}"}
        if self._who.client.naming == "counter":
            return {"event_id": f"e{len(self.events):05}"}
        return {"event_id": self._dice.hex(16)}

    def _unknown_fields(self) -> Payload:
        """What a newer client sends before Penstock knows of it."""
        dice = self._dice
        return dice.pick(
            (
                {"trace_id": dice.hex(32)},
                {"workspace": {"window": dice.between(1, 9), "panes": dice.some(NOUNS, 3)}},
                {"experiment_flags": dice.some(NOUNS, 2), "sampled": dice.chance(0.5)},
            )
        )
