"""What has to be so when everything is healed and at rest."""

import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import sqlalchemy as sa

from penstock.backends.database.tables import lease
from penstock.backends.execution.calls import InlineExecutor
from penstock.ingest.ledger import read_ledger
from penstock.lake.catalog import drop_snapshot, list_snapshots
from penstock.lake.lake import Lake
from penstock.lake.tables import reader_lease, segment
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify_deep
from penstock_jobs.simulator.truth import SessionTruth
from tests.study.faults.serving import Serving
from tests.support.lakes import HandLake
from tests.support.producers import Identity, holds_exactly, is_whole
from tests.support.waiting import eventually

_READY_SECONDS = 300.0
#: For so long no event may be stored, nor found to be a repeated one: a busy machine is slow, but
#: not still. That offsets move says nothing: writers may send events to each other for ever.
_STILL_SECONDS_MAX = 120.0


def ready(serving: Serving) -> None:
    """It came up, and nothing keeps it from its work."""
    assert serving.wait_until_up(_READY_SECONDS), f"{serving.name} does not come up"
    eventually(lambda: not serving.problems(), _READY_SECONDS)


def drained(lake: Lake, writers: Sequence[Serving], tell: Callable[[str], None]) -> None:
    """The writers take all that is in the log, with nobody's help."""
    moved_s, settled_before = time.monotonic(), -1
    while True:
        rows = read_ledger(lake).rows
        if not (waiting := sum(row.waiting for row in rows)):
            return
        settled = sum(row.stored + row.duplicate for row in rows)
        if settled != settled_before:
            settled_before, moved_s = settled, time.monotonic()
            tell(f"{waiting} events wait, {settled} are settled")
        problems = {one.name: one.problems() for one in writers}
        still_s = time.monotonic() - moved_s
        assert still_s < _STILL_SECONDS_MAX, f"{waiting} wait and none is stored: {problems}"
        time.sleep(0.2)


def is_exact(lake: Lake, acknowledged: AbstractSet[Identity], sent: AbstractSet[Identity]) -> None:
    """By queries, from the files past all views, and by the lake's own deep verification."""
    holds_exactly(lake, acknowledged, sent)
    stored = HandLake(lake).stored()
    assert set(stored.values()) == {1}, "an event is in the files twice"
    found = {(session, event) for _, session, event in stored}
    assert acknowledged <= found <= acknowledged | sent
    assert verify_deep(lake, InlineExecutor()) == []


def is_as_simulated(lake: Lake, truths: Sequence[SessionTruth]) -> int:
    """The sessions whose truth is known are there by the views, with their users, checkpoints and
    edits and no others. How many edits these are."""
    assert truths, "no simulated session was acknowledged as a whole"
    sql = "select session_id, checkpoint, project, user from sessions"
    rows = lake.query(sql).arrow().to_pylist()
    found = {row.pop("session_id"): row for row in rows}
    rows = lake.query("select session_id, edit_id, path from edits").arrow().to_pylist()
    edits: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        edits.setdefault(row["session_id"], []).append((row["edit_id"], row["path"]))
    for one in truths:
        told = {"checkpoint": one.checkpoint, "project": one.project, "user": one.user}
        assert found[one.session_id] == told
        known = sorted((edit.edit_id, edit.path) for edit in one.edits)
        assert sorted(edits.get(one.session_id, [])) == known
    return sum(len(one.edits) for one in truths)


def snapshots_hold(lake: Lake, counts: Mapping[str, int]) -> None:
    """What they held when they were first asked."""
    sql = "select count(*) as events from events"
    for name, count in counts.items():
        [found] = lake.query(sql, as_of=name).arrow().to_pylist()
        assert found["events"] == count, f"{name} had {count} events and has {found['events']}"


def nothing_is_left_over(lake: Lake) -> None:
    """Once nobody needs them, all files go but those of the lake as it is now."""
    for one in list_snapshots(lake.database):
        drop_snapshot(lake.database, one.name)

    with lake.database.write() as connection:  # those of readers that were killed would last
        connection.execute(sa.update(reader_lease).values(until=0))

    def no_readers() -> bool:
        collect(lake)
        with lake.database.read() as connection:
            return connection.execute(sa.select(reader_lease.c.id)).first() is None

    eventually(no_readers)
    is_whole(lake)


def facts(lake: Lake) -> dict[str, int]:
    """For the report."""
    ledger = read_ledger(lake)
    with lake.database.read() as connection:
        written = connection.execute(sa.select(sa.func.max(segment.c.id))).scalar_one()
        live = sa.select(sa.func.count()).where(segment.c.removed_snap.is_(None))
        return {
            "events stored": sum(row.stored for row in ledger.rows),
            "duplicates told": sum(row.duplicate for row in ledger.rows),
            "gaps": len(ledger.gaps),
            "segments ever": int(written),
            "segments live": int(connection.execute(live).scalar_one()),
            "upkeep rounds": int(connection.execute(sa.select(lease.c.epoch)).scalar_one()),
            "partitions": lake.log.partitions,
        }
