"""Simulated users at work: their events go to the gateway while they happen. And how they received
what the checkpoints did, as Penstock measures it and as the simulator knows it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean
from typing import Any
from zlib import crc32

from penstock.clock import SystemClock
from penstock.http.errors import ServerUnreachable
from penstock.ingest.file_import import wait_until_stored
from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock_jobs.demo.story import Reception
from penstock_jobs.simulator.delivery import HttpSink
from penstock_jobs.simulator.production import Checkpoint, Production, SimulatedSession
from penstock_jobs.simulator.truth import SessionTruth

#: An hour in the lives of users takes six seconds.
COMPRESSION = 600
SPACING_S = 2.0
#: The horizon of the rewards in the lives of users, and after compression.
_HORIZON_S = 600
_HORIZON_US = 1_000_000
#: For observations that come a little later than the horizon.
_LATE_US = 50_000
_BATCH_MAX = 200
_POLL_SECONDS = 0.02
_STORED_SECONDS_MAX = 30.0
_HERE = files("penstock_jobs.demo")

#: When an event happens, its session, and its line.
TimedLine = tuple[int, str, bytes]

_now_us = SystemClock().now_us


@dataclass(frozen=True)
class TrafficTruth:
    """What users did in a period, as the simulator knows it."""

    truths: Sequence[SessionTruth]
    events: int
    #: The period in which their sessions began.
    from_us: int
    until_us: int


@dataclass(frozen=True)
class DemoTraffic:
    """So many sessions at a time, through the gateway at `url`."""

    lake: Lake
    url: str
    key: str | None
    sessions: int

    def run(
        self,
        name: str,
        checkpoints: Sequence[Checkpoint],
        serve: Callable[[str], Checkpoint] | None = None,
    ) -> TrafficTruth:
        """Send sessions, the same for the same name, until the horizon of the last edit is over and
        all events are stored. Raises ServerUnreachable."""
        from_us = _now_us()
        production = Production(
            crc32(name.encode()), checkpoints, from_us, COMPRESSION, SPACING_S, name, serve
        )
        sessions = [session for some in production.sessions(self.sessions) for session in some]
        lines, until_us = _lines_until_horizon(sessions)
        sink = HttpSink(self.url, self.key)
        try:
            _send(sink, lines)
        finally:
            sink.close()
        _sleep_until(until_us)
        if not wait_until_stored(self.lake, _STORED_SECONDS_MAX):
            why = f"it stored no more events for {_STORED_SECONDS_MAX:g} s, and some are missing"
            raise ServerUnreachable(url=self.url, why=why)
        return TrafficTruth([session.truth for session in sessions], len(lines), from_us, _now_us())


def measured_reception(
    lake: Lake, version: str, checkpoint: str, from_us: int, until_us: int
) -> Reception:
    """What rewards by a version of a definition say of the sessions that began in a period."""
    parameters = {
        "version": version,
        "checkpoint": checkpoint,
        "from_us": from_us,
        "until_us": until_us,
    }
    [row] = _query(lake, "reception", ("rewards", "sessions"), parameters)
    return Reception(**row)


def true_reception(truths: Sequence[SessionTruth], checkpoint: str) -> Reception:
    sessions = [truth for truth in truths if truth.checkpoint == checkpoint]
    survivals = [edit.survival.get(_HORIZON_S) for truth in sessions for edit in truth.edits]
    reactions = [turn.dissatisfied for truth in sessions for turn in truth.turns]
    return Reception(
        _mean([shares[0] for shares in survivals if shares is not None]),
        _mean([reaction for reaction in reactions if reaction is not None]),
    )


def scores(lake: Lake) -> Mapping[str, float]:
    """The scores of checkpoints at the suite."""
    rows = _query(lake, "scores", ("benchmark_scores",), {})
    return {row["checkpoint"]: row["score"] for row in rows}


def _lines_until_horizon(sessions: Sequence[SimulatedSession]) -> tuple[list[TimedLine], int]:
    """What happens until the horizon of the last edit is over, in its order, and when that is.
    Later observations of files are left out: nobody waits for them in a demonstration."""
    lines = sorted(
        (at_us, session.truth.session_id, line)
        for session in sessions
        for at_us, _, line in session.lines
    )
    edits = [at_us for session in sessions for at_us, kind, _ in session.lines if kind == "edit"]
    until_us = max(edits, default=lines[-1][0]) + _HORIZON_US + _LATE_US
    return [line for line in lines if line[0] < until_us], until_us


def _send(sink: HttpSink, lines: Sequence[TimedLine]) -> None:
    """Send each event when it has happened."""
    sent = 0
    while sent < len(lines):
        now_us = _now_us()
        due = sent
        while due < len(lines) and due - sent < _BATCH_MAX and lines[due][0] <= now_us:
            due += 1
        if due == sent:
            _sleep_until(min(lines[sent][0], now_us + round(_POLL_SECONDS * 1_000_000)))
            continue
        sink.send([(session, line) for _, session, line in lines[sent:due]])
        sent = due


def _sleep_until(moment_us: int) -> None:
    time.sleep(max(0.0, (moment_us - _now_us()) / 1_000_000))


def _query(
    lake: Lake, name: str, views: Sequence[str], parameters: Mapping[str, object]
) -> list[dict[str, Any]]:
    sql = _HERE.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    query = OwnQuery(sql, frozenset(views), parameters)
    rows: list[dict[str, Any]] = lake.query(query).arrow().to_pylist()
    return rows


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
