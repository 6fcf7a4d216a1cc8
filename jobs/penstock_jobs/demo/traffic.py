"""Simulated users at work: their events go to the gateway while they happen."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean
from typing import Any
from zlib import crc32

from penstock.clock import SystemClock
from penstock.http.errors import ServerUnreachable
from penstock.ingest.storing import wait_until_stored
from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock_jobs.demo.story import Measured
from penstock_jobs.simulator.delivery import HttpSink
from penstock_jobs.simulator.production import Checkpoint, Lived, Production
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


_HERE = files("penstock_jobs.demo")
#: Of the simulated life of users: the horizon of the rewards.
_TEN_MINUTES_S = 600


def measured(lake: Lake, version: str, checkpoint: str, from_us: int, until_us: int) -> Measured:
    """By a version of a definition, of the sessions that began in a while."""
    facts = {
        "version": version,
        "checkpoint": checkpoint,
        "from_us": from_us,
        "until_us": until_us,
    }
    [row] = _ask(lake, "seen", ("rewards", "sessions"), facts)
    return Measured(**row)


def known(truths: Sequence[SessionTruth], checkpoint: str) -> Measured:
    mine = [one for one in truths if one.checkpoint == checkpoint]
    edits = [edit.survival.get(_TEN_MINUTES_S) for one in mine for edit in one.edits]
    said = [turn.dissatisfied for one in mine for turn in one.turns]
    return Measured(
        _mean([kept[0] for kept in edits if kept is not None]),
        _mean([one for one in said if one is not None]),
    )


def scores(lake: Lake) -> Mapping[str, float]:
    """At the suite, by checkpoint."""
    rows = _ask(lake, "scores", ("benchmark_scores",), {})
    return {row["checkpoint"]: row["score"] for row in rows}


def _ask(
    lake: Lake, name: str, views: Sequence[str], facts: Mapping[str, object]
) -> list[dict[str, Any]]:
    sql = _HERE.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    query = OwnQuery(sql, frozenset(views), facts)
    rows: list[dict[str, Any]] = lake.query(query).arrow().to_pylist()
    return rows


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
