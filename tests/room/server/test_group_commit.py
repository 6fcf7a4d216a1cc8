"""How requests share a sync."""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from penstock.backends.eventlog.local import LocalEventLog
from penstock.backends.eventlog.log import LogUnwritable
from penstock.core.errors import Backlogged
from penstock.core.metrics import Metrics
from penstock.ingest import gateway
from penstock.ingest.gateway import GroupCommit

MIB = 1024 * 1024


class Gate(LocalEventLog):
    """A local log whose appends are counted, and can be kept waiting or made to fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, file_bytes_max=MIB, bytes_max=8 * MIB)
        self.appends = 0
        self.entered, self.open = threading.Event(), threading.Event()
        self.open.set()
        self.failure: Exception | None = None

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        self.appends += 1
        self.entered.set()
        assert self.open.wait(300)
        if self.failure is not None:
            raise self.failure
        super().append(values)

    def held(self) -> list[bytes]:
        return [value for entry in self.read(0, 0, MIB) for value in entry.values]


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def commits(gate: Gate) -> Iterator[GroupCommit]:
    made = GroupCommit(gate, 1000, Metrics())
    yield made
    gate.open.set()
    made.close()


async def crowd(gate: Gate, commits: GroupCommit, values: list[bytes]) -> list[object]:
    """One append that is kept in the log, and these behind it; what became of them."""
    gate.open.clear()
    first = asyncio.create_task(commits.append({0: [b"first"]}))
    await asyncio.to_thread(gate.entered.wait, 300)
    others = [asyncio.create_task(commits.append({0: [value]})) for value in values]
    await asyncio.sleep(0)  # each of them stands in the queue now
    gate.open.set()
    return await asyncio.gather(first, *others, return_exceptions=True)


def test_requests_that_meet_share_a_sync(gate: Gate, commits: GroupCommit) -> None:
    values = [b"%d" % i for i in range(100)]
    assert asyncio.run(crowd(gate, commits, values)) == [None] * 101
    assert gate.appends == 2
    assert gate.held() == [b"first", *values]


def test_group_ends_at_its_limit_of_bytes(gate: Gate, commits: GroupCommit) -> None:
    """But a request that is larger alone is still written."""
    values = [b"a" * 400] * 5 + [b"b" * 3000]
    assert asyncio.run(crowd(gate, commits, values)) == [None] * 7
    assert gate.appends == 1 + 3 + 1
    assert gate.held() == [b"first", *values]


def test_a_large_request_lets_small_ones_go_before_the_rest_of_it(
    gate: Gate, commits: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "APPEND_BYTES_MAX", 100)

    async def meet() -> None:
        gate.open.clear()
        large = asyncio.create_task(commits.append({0: [b"a" * 80, b"b" * 200]}))
        await asyncio.to_thread(gate.entered.wait, 300)
        small = asyncio.create_task(commits.append({0: [b"small"]}))
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(large, small)

    asyncio.run(meet())
    assert gate.held() == [b"a" * 80, b"small", b"b" * 200]


@pytest.mark.parametrize(
    "failure", [LogUnwritable(why="gone"), Backlogged(why="full"), OSError("disk"), TypeError("?")]
)
def test_failure_reaches_every_waiter_and_later_appends_work(
    gate: Gate, commits: GroupCommit, failure: Exception
) -> None:
    async def fail_and_go_on() -> None:
        gate.failure = failure
        assert await crowd(gate, commits, [b"1", b"2", b"3"]) == [failure] * 4
        gate.failure = None
        await commits.append({0: [b"later"]})

    asyncio.run(fail_and_go_on())
    assert gate.held() == [b"later"]


def test_request_that_is_given_up_disturbs_no_other(gate: Gate, commits: GroupCommit) -> None:
    async def give_up() -> None:
        gate.open.clear()
        first = asyncio.create_task(commits.append({0: [b"first"]}))
        await asyncio.to_thread(gate.entered.wait, 300)
        given_up, other = (asyncio.create_task(commits.append({0: [v]})) for v in (b"a", b"b"))
        await asyncio.sleep(0)
        given_up.cancel()
        gate.open.set()
        await asyncio.gather(first, other)
        assert given_up.cancelled()

    asyncio.run(give_up())
    assert b"b" in gate.held()


def test_close_writes_what_waits_and_refuses_more(gate: Gate) -> None:
    commits = GroupCommit(gate, 1000, Metrics())

    async def close_while_waiting() -> None:
        gate.open.clear()
        waiting = [asyncio.create_task(commits.append({0: [b"%d" % i]})) for i in range(3)]
        await asyncio.to_thread(gate.entered.wait, 300)
        closing = asyncio.create_task(asyncio.to_thread(commits.close))
        gate.open.set()
        await asyncio.gather(closing, *waiting)
        with pytest.raises(Backlogged, match="shutting down"):
            await commits.append({0: [b"late"]})
        await asyncio.to_thread(commits.close)  # a second time does no harm

    asyncio.run(close_while_waiting())
    assert sorted(gate.held()) == [b"0", b"1", b"2"]


def test_requests_of_several_event_loops_are_each_told(gate: Gate, commits: GroupCommit) -> None:
    told: list[bool] = []

    def ask() -> None:
        asyncio.run(commits.append({0: [b"x"]}))
        told.append(True)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [True] * 4
    assert gate.held() == [b"x"] * 4
