"""Simulated users at work: their events go to the gateway while they happen."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from penstock.clock import SystemClock
from penstock.http.errors import ServerUnreachable
from penstock.ingest.file_import import wait_until_stored
from penstock.lake.lake import Lake
from penstock_jobs.simulator.production import Checkpoint, Lived, Production
from penstock_jobs.simulator.sinks import HttpSink
from penstock_jobs.simulator.truth import SessionTruth

#: An hour of the users' lives takes six seconds.
COMPRESSION = 600
SPACING_S = 2.0
#: When the horizon of the rewards is over: ten minutes of theirs. And a little, for what is late.
_HORIZON_US = 1_000_000
_LATE_US = 50_000
_BATCH_MAX = 200
_LOOK_SECONDS = 0.02
_STORED_SECONDS_MAX = 30.0

Entry = tuple[int, str, bytes]

_now_us = SystemClock().now_us


@dataclass(frozen=True)
class Worked:
    """What users did in a while, as the simulator knows it."""

    truths: Sequence[SessionTruth]
    events: int
    #: From when to when their sessions began.
    from_us: int
    until_us: int


@dataclass(frozen=True)
class Traffic:
    """So many sessions at a time, through the gateway at `url`."""

    lake: Lake
    url: str
    key: str | None
    sessions: int

    def work(
        self,
        name: str,
        checkpoints: Sequence[Checkpoint],
        serve: Callable[[str], Checkpoint] | None = None,
    ) -> Worked:
        """Let sessions happen, the same for the same name, until the horizon of the last edit is
        over and all events are stored. Raises ServerUnreachable."""
        begun_us = _now_us()
        production = Production(
            crc32(name.encode()), checkpoints, begun_us, COMPRESSION, SPACING_S, name, serve
        )
        lived = [one for some in production.sessions(self.sessions) for one in some]
        entries, until_us = _entries(lived)
        sink = HttpSink(self.url, self.key)
        try:
            _send(sink, entries)
        finally:
            sink.close()
        _wait_until(until_us)
        self._wait_until_stored()
        return Worked([one.truth for one in lived], len(entries), begun_us, _now_us())

    def _wait_until_stored(self) -> None:
        if not wait_until_stored(self.lake, _STORED_SECONDS_MAX):
            why = f"it has not stored all events, and no more of them for {_STORED_SECONDS_MAX:g} s"
            raise ServerUnreachable(url=self.url, why=why)


def _entries(lived: Sequence[Lived]) -> tuple[list[Entry], int]:
    """What happens until the horizon of the last edit is over, in its order, and when that is.
    Looks at files hours and days later are nobody's in a demonstration."""
    all_of_them = sorted(
        (at_us, one.truth.session_id, line) for one in lived for at_us, _, line in one.lines
    )
    edits = [at_us for one in lived for at_us, kind, _ in one.lines if kind == "edit"]
    until_us = max(edits, default=all_of_them[-1][0]) + _HORIZON_US + _LATE_US
    return [one for one in all_of_them if one[0] < until_us], until_us


def _send(sink: HttpSink, entries: Sequence[Entry]) -> None:
    """Each when it has happened."""
    sent = 0
    while sent < len(entries):
        now_us = _now_us()
        due = sent
        while due < len(entries) and due - sent < _BATCH_MAX and entries[due][0] <= now_us:
            due += 1
        if due == sent:
            _wait_until(min(entries[sent][0], now_us + round(_LOOK_SECONDS * 1_000_000)))
            continue
        sink.send([(session, line) for _, session, line in entries[sent:due]])
        sent = due


def _wait_until(moment_us: int) -> None:
    time.sleep(max(0.0, (moment_us - _now_us()) / 1_000_000))
