"""Statements of users, in this process and in processes of their own: one behaviour, and what only
a process of its own can do."""

import io
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.backends.execution import guarded_process
from penstock.core.errors import PenstockError
from penstock.lake import QueriesUnavailable, QueryFailed, QueryLimitReached, QueryRefused
from penstock.lake.query import lake_query as query
from penstock.lake.query import statement_processes
from penstock.lake.query.spill import FREE_BYTES, SpillRate
from penstock.lake.query.statement_processes import (
    Connection,
    FileRequest,
    Finished,
    Prepare,
    ProcessStatement,
    StatementProcesses,
    ToProcess,
    ViewsRead,
)
from penstock.lake.query.statements import (
    LocalStatement,
    Preparation,
    StatementLimits,
    StatementRunner,
)
from tests.support.lake.hostile_sql import allowed_statements, hostile_statements
from tests.support.lakes import hand_lake

MIB = 1024 * 1024
VIEWS = frozenset({"events", "sessions"})
EVENTS = pa.table({"session_id": ["a", "b", "a"], "type": ["x", "y", "z"], "payload": ["{}"] * 3})

Open = Callable[..., StatementRunner]


@pytest.fixture(scope="module")
def processes() -> Iterator[StatementProcesses]:
    with closing(StatementProcesses(distant_files=True)) as processes:
        yield processes


@pytest.fixture(params=["local", "process"])
def open_statement(
    request: pytest.FixtureRequest, processes: StatementProcesses, tmp_path: Path
) -> Iterator[Open]:
    opened: list[StatementRunner] = []

    def start(**changes: Any) -> StatementRunner:
        limits = _limits(tmp_path, **changes)
        local = request.param == "local"
        statement = LocalStatement(limits) if local else processes.open(limits)
        opened.append(statement)
        return statement

    yield start
    for statement in opened:
        statement.close()


def _limits(
    folder: Path, seconds: float = 30.0, memory_bytes: int = 64 * MIB, threads: int = 1, **more: Any
) -> StatementLimits:
    spill = str(folder / "spill")
    return StatementLimits(seconds, memory_bytes, threads, spill, 64 * MIB, **more)


def _preparation() -> Preparation:
    preparation = Preparation()
    preparation.register("rows", EVENTS)
    preparation.execute("SET VARIABLE tenant = ?", ["mine"])
    preparation.execute("CREATE VIEW events AS FROM rows")
    return preparation


def _answer(
    statement: StatementRunner, sql: str, preparation: Preparation | None = None
) -> pa.Table:
    statement.views(sql, VIEWS)
    return _written(statement, sql, preparation or _preparation())


def _written(statement: StatementRunner, sql: str, preparation: Preparation) -> pa.Table:
    """Past the guard."""
    out = io.BytesIO()
    statement.write([sql], preparation, "arrow", out)
    return pa.ipc.open_stream(out.getvalue()).read_all()


def test_the_rows_come(open_statement: Open) -> None:
    sql = "SELECT session_id, count(*) AS n FROM events GROUP BY ALL ORDER BY ALL"
    statement = open_statement()
    assert statement.views(sql, VIEWS) == {"events"}
    rows = _written(statement, sql, _preparation()).to_pylist()
    assert rows == [{"session_id": "a", "n": 2}, {"session_id": "b", "n": 1}]

    sql = "SELECT range AS n, repeat('x', 100) AS text FROM range(100000)"
    assert _answer(open_statement(), sql).num_rows == 100_000


def test_an_answer_may_be_left_in_the_middle(open_statement: Open) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise BufferError

    statement = open_statement()
    sql = "SELECT range FROM range(100000000)"
    statement.views(sql, VIEWS)
    with pytest.raises(BufferError):
        statement.write([sql], _preparation(), "members", Full())
    statement.close()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT * FROM other", "no view other"),
        ("SELECT 1; SELECT 2", "exactly one SELECT"),
        ("SELECT '\ud800'", "."),
        ("SELECT read_text('/etc/passwd')", "read_text may not be used"),
    ],
)
def test_what_the_guard_refuses_is_refused(open_statement: Open, sql: str, why: str) -> None:
    with pytest.raises(QueryRefused, match=why):
        open_statement().views(sql, VIEWS)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 'a'::INTEGER", "Conversion Error"),
        ("SELECT 1 AS a, 2 AS a", "two columns are named a"),
        ("SELECT nothing FROM events", "nothing"),
        (
            "SELECT CASE WHEN range < 50000 THEN '1' ELSE 'x' END::INTEGER FROM range(60000)",
            "Conversion Error",
        ),
    ],
)
def test_what_the_engine_refuses_is_named(open_statement: Open, sql: str, why: str) -> None:
    """Also in the middle of the rows."""
    with pytest.raises(QueryFailed, match=why):
        _answer(open_statement(), sql)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(*) FROM range(1000000) a, range(1000000)", r"0\.4 s"),
        ("SELECT a.range FROM range(1000000) a, range(1000000) b", r"0\.4 s"),
        ("SELECT list(range || repeat('x', 1000)) FROM range(100000000)", "bytes of memory"),
    ],
)
def test_time_and_memory_are_limited(open_statement: Open, sql: str, why: str) -> None:
    statement = open_statement(seconds=0.4 if "0" in why else 30.0)
    with pytest.raises(QueryLimitReached, match=why):
        _answer(statement, sql)


def test_only_bound_files_are_read(open_statement: Open, tmp_path: Path) -> None:
    for name in ("pinned", "other"):
        pq.write_table(pa.table({"name": [name]}), tmp_path / name)

    def read(name: str) -> pa.Table:
        """Past the guard, which knows no such function."""
        statement = open_statement(lake=str(tmp_path))
        statement.views("SELECT 1", VIEWS)
        preparation = Preparation(paths=[str(tmp_path / "pinned")])
        sql = f"SELECT * FROM read_parquet('{tmp_path / name}')"
        return _written(statement, sql, preparation)

    assert read("pinned").num_rows == 1
    with pytest.raises(QueryFailed):
        read("other")


def test_the_engine_s_threads_start_behind_the_walls(tmp_path: Path) -> None:
    """The kernel's wall around files is that of a thread and of those that it starts."""
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        pytest.skip("no /proc")
    before = set(tasks.iterdir())
    with closing(LocalStatement(_limits(tmp_path, threads=3))) as statement:
        assert not set(tasks.iterdir()) - before
        statement.answer("SELECT 1", Preparation(), {}).read_all()
        assert set(tasks.iterdir()) - before


def test_all_statements_together_spill_half_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log and the lake share the disk."""
    opened: list[StatementLimits] = []

    class Statement(LocalStatement):
        def __init__(self, limits: StatementLimits) -> None:
            opened.append(limits)
            super().__init__(limits)

    monkeypatch.setattr(query, "LocalStatement", Statement)
    with hand_lake(tmp_path, queries_max=4) as lake:
        lake.rows("SELECT 1 AS a")
        monkeypatch.setattr(query, "_free_bytes", lambda _folder: 8 << 20)
        lake.rows("SELECT 1 AS a")
    assert [limits.spill_bytes for limits in opened] == [opened[0].spill_bytes, 1 << 20]
    assert opened[0].spill_bytes > 1 << 20


# What only a process of its own can do


def test_a_fault_of_the_engine_ends_its_own_process(
    processes: StatementProcesses, tmp_path: Path
) -> None:
    """The guard would refuse it: here it is let through."""
    with closing(processes.open(_limits(tmp_path))) as statement:
        statement.views("SELECT 1", VIEWS)
        with pytest.raises(QueryFailed, match="its process ended"):
            _written(statement, "SELECT \"=\"({'a': 1}, 1.5)", _preparation())
    with closing(processes.open(_limits(tmp_path))) as statement:
        assert _answer(statement, "SELECT 1 AS a").num_rows == 1


def test_who_writes_too_fast_is_stopped(processes: StatementProcesses, tmp_path: Path) -> None:
    """The log shares the disk. What is sorted here is some times as large as what is free."""
    if not Path("/proc/self/io").exists():
        pytest.skip("the system does not say what a process has written")
    sql = "SELECT range AS a, repeat('x', 200) || range AS b FROM range(3000000) ORDER BY b DESC"
    sorted_out = f"SELECT count(*) AS rows FROM ({sql} LIMIT 2900000)"
    small = replace(_limits(tmp_path, 600, 128 * MIB), spill_bytes=4096 * MIB)
    with closing(processes.open(small)) as statement:
        assert _answer(statement, sorted_out).to_pylist() == [{"rows": 2_900_000}]
    slow = replace(small, spill_bytes_per_second=1, seconds=5)
    with closing(processes.open(slow)) as statement, pytest.raises(QueryLimitReached, match="5 s"):
        _answer(statement, sorted_out)


@pytest.mark.parametrize(
    ("bytes_per_second", "written", "seconds", "exceeded"),
    [
        (10, FREE_BYTES, 0, False),
        (10, FREE_BYTES + 1, 0, True),
        (10, FREE_BYTES + 20, 2, False),
        (10, FREE_BYTES + 21, 2, True),
        (0, 1 << 40, 0, False),
    ],
)
def test_how_fast_a_statement_may_write(
    bytes_per_second: int, written: int, seconds: float, exceeded: bool
) -> None:
    assert SpillRate(bytes_per_second, 100.0).exceeded(written, 100.0 + seconds) == exceeded


def test_what_cannot_be_interrupted_is_ended(processes: StatementProcesses, tmp_path: Path) -> None:
    sql = "SELECT levenshtein(repeat('ab', 500000), repeat('ba', 500000))"
    with (
        closing(processes.open(_limits(tmp_path, seconds=0.2))) as statement,
        pytest.raises(QueryLimitReached, match=r"0\.2 s"),
    ):
        _answer(statement, sql)


def test_it_reads_no_files_and_opens_no_sockets(
    processes: StatementProcesses, tmp_path: Path
) -> None:
    """The wall behind the other two: nothing refuses here but the kernel."""
    (tmp_path / "secret.csv").write_text("a\n1\n")
    preparation = Preparation()
    preparation.execute(f"CREATE VIEW events AS FROM read_csv('{tmp_path / 'secret.csv'}')")
    with closing(processes.open(_limits(tmp_path))) as statement, pytest.raises(QueryFailed):
        _answer(statement, "FROM events", preparation)


def test_files_of_another_store_are_read_by_the_server(
    processes: StatementProcesses, tmp_path: Path
) -> None:
    class File:
        content = b""

        @property
        def size(self) -> int:
            return len(self.content)

        def read(self, start: int, length: int) -> bytes:
            return self.content[start : start + length]

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": list(range(10_000))}), sink)
    file = File()
    file.content = sink.getvalue().to_pybytes()
    path = "penstock://lake/one.parquet"
    preparation = Preparation({"lake/one.parquet": file}, paths=[path])
    preparation.execute(f"CREATE VIEW events AS FROM read_parquet('{path}')")
    with closing(processes.open(_limits(tmp_path))) as statement:
        sql = "SELECT sum(n) AS n FROM events"
        rows = _answer(statement, sql, preparation).to_pylist()
    assert rows == [{"n": sum(range(10_000))}]


class _TakenOver:
    """The process's end of a statement, where what is said there is not the process's will."""

    def __init__(self, folder: Path) -> None:
        ours, self.socket = socket.socketpair()
        for end in (ours, self.socket):
            end.settimeout(30)
        self.connection = Connection(self.socket, ToProcess)
        self.statement = ProcessStatement(ours, _limits(folder))

    def close(self) -> None:
        self.statement.close()
        self.socket.close()


def test_a_process_that_is_taken_over_chooses_no_views_and_no_sizes(tmp_path: Path) -> None:
    with closing(_TakenOver(tmp_path)) as process:
        process.connection.send(ViewsRead(["secrets", "events"]))
        assert process.statement.views("FROM events", VIEWS) == {"events"}
        process.socket.sendall((1 << 40).to_bytes(8, "little"))
        with pytest.raises(QueryFailed, match="its process ended"):
            process.statement.write(["FROM events"], Preparation(), "arrow", io.BytesIO())


def test_a_process_that_is_taken_over_reads_no_more_than_its_files_hold(tmp_path: Path) -> None:
    class File:
        size = 10

        def read(self, start: int, length: int) -> bytes:
            return bytes(length)

    def answers() -> list[bytes | None]:
        return [process.connection.receive().content for _ in range(4)]

    with closing(_TakenOver(tmp_path)) as process, ThreadPoolExecutor(1) as threads:
        written = threads.submit(
            process.statement.write, "", Preparation({"file": File()}), "arrow", io.BytesIO()
        )
        assert isinstance(process.connection.receive(), Prepare)
        for request in (
            FileRequest(0, "file", 4, 1 << 40),
            FileRequest(1, "file", 1 << 40, 1),
            FileRequest(2, "another"),
            FileRequest(3, "file"),
        ):
            process.connection.send(request)
        assert sorted(map(str, answers())) == sorted(map(str, [None, b"", b"10", bytes(6)]))
        process.connection.send(Finished())
        written.result()


def test_no_process_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_processes, "_SERVER_MODULE", "penstock.no_such_module")
    with closing(StatementProcesses()) as processes, pytest.raises(QueriesUnavailable):
        processes.open(_limits(tmp_path))


def test_a_server_of_processes_that_was_ended_starts_again(tmp_path: Path) -> None:
    with closing(StatementProcesses()) as processes:
        processes.open(_limits(tmp_path)).close()
        assert processes._process is not None
        os.kill(processes._process.process.pid, signal.SIGKILL)
        processes._process.process.wait()
        with closing(processes.open(_limits(tmp_path))) as statement:
            assert _answer(statement, "SELECT 1 AS a").num_rows == 1


def test_a_server_of_processes_whose_caller_is_gone_ends_without_a_word() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs:
        command = [sys.executable, "-P", "-c", guarded_process._START, json.dumps(sys.path)]
        command += [statement_processes._SERVER_MODULE, str(theirs.fileno()), "text"]
        done = subprocess.run(
            command, pass_fds=[theirs.fileno()], capture_output=True, check=False, text=True
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.system
def test_every_hostile_statement_is_refused_answered_or_ended(
    processes: StatementProcesses, tmp_path: Path
) -> None:
    """The guard sees all in one process, which none of them ends; what it lets through runs in
    processes of its own."""
    statements = hostile_statements()
    assert len(statements) >= 500
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as guard:
        allowed = guard.submit(allowed_statements, statements, VIEWS).result()
    assert 100 < len(allowed) < len(statements) / 2
    with ThreadPoolExecutor(2) as threads:
        outcomes = threads.map(partial(_outcome, processes, tmp_path), allowed)
        wrong = [(sql[:200], outcome) for sql, outcome in zip(allowed, outcomes, strict=True)]
    assert not [(sql, outcome) for sql, outcome in wrong if outcome]
    with closing(processes.open(_limits(tmp_path))) as statement:
        assert _answer(statement, "SELECT 1 AS a").to_pylist() == [{"a": 1}]


def _outcome(processes: StatementProcesses, folder: Path, sql: str) -> str:
    """What went wrong: an error that is none of ours, or one that shows what is inside."""
    limits = _limits(folder / str(threading.get_ident()), seconds=0.05, grace_seconds=0.05)
    with closing(processes.open(limits)) as statement:
        try:
            _answer(statement, sql)
        except (QueryRefused, QueryFailed, QueryLimitReached) as error:
            if leak := _inside(str(error)):
                return f"it shows {leak}"
        except PenstockError as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _inside(text: str) -> str:
    signs = ("0x", ".so", "site-packages", "Traceback", "Stack Trace", "duckdb::", "/proc/self/fd")
    return next((sign for sign in signs if sign in text), "")
