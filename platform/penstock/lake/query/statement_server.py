"""The process of a statement, forked from one that has loaded the engine and nothing else.

`main`, the fork server, forks for each socket that it gets. It ends a child at its time limit or
when nobody listens. The child confines itself by the kernel before it reads what a user wrote: it
can open no network, and only the files of its preparation.
"""

import gc
import io
import itertools
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import duckdb
import msgspec

from penstock.backends.execution.confinement import (
    ALONE,
    COMMON_FILES,
    die_with_parent,
    forbid_calls,
    limit_files,
    limit_resources,
)
from penstock.core.arrow_start import NoPandas
from penstock.core.logs import configure_logs, log_everything
from penstock.lake import QueryFailed, QueryLimitReached, QueryRefused
from penstock.lake.query.guard import check_query
from penstock.lake.query.row_formats import WireFormat, write_rows
from penstock.lake.query.spill import LOOK_SECONDS, SpillRate, begin_writing, written_by
from penstock.lake.query.statement_processes import (
    PIECE_BYTES_MAX,
    Connection,
    FileContent,
    FileRequest,
    Finished,
    LimitMet,
    Parse,
    Piece,
    Prepare,
    StatementRefused,
    ToProcess,
    ViewsRead,
    decode_table,
)
from penstock.lake.query.statements import (
    ENGINE_FAILED,
    LocalStatement,
    Preparation,
    StatementLimits,
    memory_limit_reached,
    open_engine,
)

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer

_KILL_AGAIN_SECONDS = 0.5
#: Memory for Arrow, Python and the engine's own structures, beside the engine's limit.
SPARE_BYTES = 512 << 20
_OPEN_FILES_MAX = 1024
#: Files that the engine reads to start the threads for a remote store.
_OF_ASYNC_READS = ("/proc/self/cgroup", "/sys/devices/system/cpu/online", "/sys/fs/cgroup")
_NICE = 15  # taking events in comes first
_WHY_CHARS_MAX = 4000


@dataclass
class _Child:
    end: socket.socket  # kept to see that the server has closed its own
    deadline_s: float
    folder: str
    spill: SpillRate
    written_bytes: int = 0
    stopped: bool = False


@dataclass
class _Children:
    engine: duckdb.DuckDBPyConnection  # each child has its own copy
    poll: "select.poll" = field(default_factory=select.poll)
    running: dict[int, _Child] = field(default_factory=dict)

    def fork(self, content: bytes, end: socket.socket) -> None:
        limits = msgspec.json.decode(content, type=StatementLimits)
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # no memory for one more: the server sees the end of the socket
            end.close()
            return
        if pid == 0:
            _be_alone_with(end, parent)
            _serve(end, LocalStatement(limits, self.engine), limits)
            os._exit(0)
        now_s = time.monotonic()
        deadline_s = now_s + limits.seconds + limits.grace_seconds
        spill = SpillRate(limits.spill_bytes_per_second, now_s)
        self.running[pid] = _Child(end, deadline_s, limits.spill, spill)
        self.poll.register(end, 0)  # hang-ups alone

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)  # it is listed until it is reaped, so the id is its own
        with suppress(KeyError):
            self.poll.unregister(self.running[pid].end)

    def forget_ended(self) -> None:
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                child = self.running.pop(pid)
                with suppress(KeyError):
                    self.poll.unregister(child.end)
                child.end.close()

    def wait(self) -> set[int]:
        """Wait for events at files. Ends children that are over their time or have no listener, and
        pauses those that write too fast."""
        now_s = time.monotonic()
        first_s = min((child.deadline_s for child in self.running.values()), default=None)
        pause_ms = None
        if first_s is not None:
            pause_ms = min(LOOK_SECONDS, max(0.0, first_s - now_s)) * 1000 + 1
        happened = {file for file, _ in self.poll.poll(pause_ms)}
        self.forget_ended()
        now_s = time.monotonic()
        for pid, child in list(self.running.items()):
            if child.end.fileno() in happened or now_s >= child.deadline_s:
                self.kill(pid)
                child.deadline_s = now_s + _KILL_AGAIN_SECONDS
            else:
                self._slow_down(pid, child, now_s)
        return happened

    def _slow_down(self, pid: int, child: _Child, now_s: float) -> None:
        written_bytes = written_by(pid)
        if written_bytes > child.written_bytes:
            begin_writing(child.folder)
            child.written_bytes = written_bytes
        if child.spill.exceeded(written_bytes, now_s) != child.stopped:
            child.stopped = not child.stopped
            os.kill(pid, signal.SIGSTOP if child.stopped else signal.SIGCONT)


def main(control: socket.socket, log_format: str, *modules: str) -> None:
    """Fork a process for each socket that comes, until the caller is gone."""
    configure_logs(log_format)
    log_everything()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    woken.setblocking(False)
    children = _Children(_load(modules))
    children.poll.register(control, select.POLLIN)
    children.poll.register(woken, select.POLLIN)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        control.sendall(b"r")
        _fork_until_alone(control, woken, children)
    except ConnectionError:  # the caller ended while this began, or with something unread
        pass
    os._exit(0)  # the engine's binding would list what it never frees on the service's output


def _fork_until_alone(control: socket.socket, woken: socket.socket, children: _Children) -> None:
    while True:
        happened = children.wait()
        with suppress(BlockingIOError):
            woken.recv(4096)
        if control.fileno() in happened:
            content, ends, _, _ = socket.recv_fds(control, 1 << 16, 1)
            if not content:
                return
            children.fork(content, socket.socket(fileno=ends[0]))


def _load(modules: Sequence[str]) -> duckdb.DuckDBPyConnection:
    for module in modules:
        with suppress(ImportError):  # its extra is not installed: the first statement says so
            import_module(module)
    sys.meta_path.insert(0, NoPandas())
    engine = open_engine()
    check_query(engine, "SELECT 1", frozenset())
    for form in get_args(WireFormat):
        answer = engine.sql("SELECT 'a' AS a, 1 AS b, now() AS c, '{}'::JSON AS d FROM range(2)")
        write_rows(answer.to_arrow_reader(1), form, io.BytesIO())
    gc.freeze()
    return engine


def _be_alone_with(end: socket.socket, parent: int) -> None:
    """Close all files of the fork server, above all sockets of other statements, and be the first
    to be killed when memory is short."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, end.fileno())
    os.closerange(end.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    if sys.platform == "linux":
        die_with_parent(parent)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _serve(end: socket.socket, statement: LocalStatement, limits: StatementLimits) -> None:
    connection = Connection(end, ToProcess)
    os.nice(_NICE)
    os.umask(0o077)
    # As the fork server does, if that is there no more.
    signal.setitimer(signal.ITIMER_REAL, limits.seconds + 2 * limits.grace_seconds)
    for folder in filter(None, [limits.lake, limits.spill]):
        Path(folder).mkdir(parents=True, exist_ok=True)
    limit_resources(
        memory_bytes=limits.memory_bytes + SPARE_BYTES,
        cpu_seconds=int((limits.seconds + 1) * limits.threads) + 1,
        open_files=_OPEN_FILES_MAX,
        file_bytes=limits.spill_bytes,
    )
    forbid_calls(ALONE)
    with suppress(EOFError, OSError):
        try:
            _answer(connection, statement, limits)
        except QueryLimitReached as error:
            of_memory = error.facts == memory_limit_reached(limits).facts
            connection.send(LimitMet("memory" if of_memory else "time"))
        except (QueryRefused, QueryFailed) as error:
            why = str(error.facts["why"])[:_WHY_CHARS_MAX]
            connection.send(StatementRefused(why, by_guard=isinstance(error, QueryRefused)))
        except MemoryError:
            connection.send(LimitMet("memory"))
        except (EOFError, OSError):
            raise
        except Exception:  # noqa: BLE001  # what fails in here is the statement's fault
            connection.send(StatementRefused(ENGINE_FAILED, by_guard=False))


def _answer(connection: Connection, statement: LocalStatement, limits: StatementLimits) -> None:
    common = [*COMMON_FILES, *(() if limits.lake else _OF_ASYNC_READS)]
    limit_files([*common, *filter(None, [limits.lake])], [limits.spill])
    message = connection.receive()
    if isinstance(message, Parse):  # SQL of a user; our own is not looked at
        views = statement.views(message.sql, frozenset(message.names))
        connection.send(ViewsRead(sorted(views)))
        message = connection.receive()
    prepare: Prepare = message
    limit_files([*common, *prepare.paths], [limits.spill])
    distant = _DistantFiles(connection)
    threading.Thread(target=distant.listen, daemon=True).start()
    files = {name: _DistantFile(distant, name) for name in prepare.distant}
    preparation = Preparation(files, paths=prepare.paths)
    for text, content in prepare.steps:
        if isinstance(content, memoryview):
            preparation.register(text, decode_table(content))
        else:
            preparation.execute(text, content)
    with io.BufferedWriter(_PieceWriter(connection), PIECE_BYTES_MAX) as out:
        statement.write(prepare.sqls, preparation, prepare.form, out)
    connection.send(Finished())


class _PieceWriter(io.RawIOBase):
    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def writable(self) -> bool:
        return True

    def write(self, data: "Buffer") -> int:
        piece = memoryview(data).cast("B")[:PIECE_BYTES_MAX]
        self._connection.send(Piece(piece))
        return len(piece)


class _DistantFiles:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[bytes]] = {}

    def listen(self) -> None:
        with suppress(EOFError):
            while True:
                piece: FileContent = self._connection.receive()
                waiting = self._waiting.pop(piece.request)
                if piece.content is None:
                    waiting.set_exception(OSError("the store did not answer"))
                else:
                    waiting.set_result(piece.content)
        os._exit(1)

    def read(self, name: str, start: int, length: int | None) -> bytes:
        number = next(self._numbers)
        waiting = self._waiting[number] = Future()
        self._connection.send(FileRequest(number, name, start, length))
        return waiting.result()


class _DistantFile:
    def __init__(self, files: _DistantFiles, name: str) -> None:
        self._files = files
        self._name = name

    @cached_property
    def size(self) -> int:
        return int(self._files.read(self._name, 0, None))

    def read(self, start: int, length: int) -> bytes:
        return self._files.read(self._name, start, length)
