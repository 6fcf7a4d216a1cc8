"""Statements in processes of their own: the server's end.

A statement may end its process, and takes nothing else with it. It is over when its socket says
so: by its answer, by the end of the process, or because the kernel ended it at its limits.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import msgspec
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.lake.errors import QueryFailed, QueryLimitReached, QueryRefused
from penstock.lake.pinned_files import DistantFile
from penstock.lake.statement_messages import (
    Columns,
    Connection,
    FileContent,
    FileRequest,
    Finished,
    FromProcess,
    Parse,
    Prepare,
    Refused,
    Rows,
    ViewsRead,
    steps_of,
)
from penstock.lake.statements import Preparation, StatementLimits, time_limit_reached

Expected = TypeVar("Expected", ViewsRead, Columns)
_ERRORS = {error.__name__: error for error in (QueryRefused, QueryFailed, QueryLimitReached)}
_SERVER_MODULE = "penstock.lake.statement_server"
_START_SECONDS_MAX = 60.0
#: Pieces of files that one statement waits for at the same time.
_READS_MAX = 4


class StatementProcesses:
    """Forks a process for each statement, from one that is started ahead."""

    def __init__(self, *, distant_files: bool = False) -> None:
        """`distant_files` says that the lake's files are in another store."""
        self._preload = ["fsspec"] if distant_files else []
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Load the engine ahead of the first statement."""
        with self._lock:
            self._start()

    def open(self, limits: StatementLimits) -> "ProcessStatement":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._send(limits, theirs)
            except OSError:  # the fork server was ended from outside: one more
                self._send(limits, theirs)
        return ProcessStatement(ours, limits)

    def _send(self, limits: StatementLimits, end: socket.socket) -> None:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._control is not None
            socket.send_fds(self._control, [msgspec.json.encode(limits)], [end.fileno()])

    def _start(self) -> None:
        self._stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _SERVER_MODULE, str(theirs.fileno()), *self._preload],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # The engine has threads of its own; secrets in the environment are not for SQL.
                env={
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "OPENBLAS_NUM_THREADS": "1",
                    "MALLOC_ARENA_MAX": "2",
                },
                start_new_session=True,
            )
        self._control = ours
        ours.settimeout(_START_SECONDS_MAX)
        ours.recv(1)

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._control = self._process = None

    def close(self) -> None:
        with self._lock:
            self._stop()


class ProcessStatement:
    """A StatementRunner in a process of its own."""

    def __init__(self, end: socket.socket, limits: StatementLimits) -> None:
        self._connection = Connection(end, FromProcess)
        self._limits = limits
        self._started_s = time.monotonic()
        self._files: Mapping[str, DistantFile] = {}
        self._reads = ThreadPoolExecutor(_READS_MAX, "statement-files")

    def views(self, sql: str, names: frozenset[str]) -> frozenset[str]:
        try:
            sql.encode()
        except UnicodeEncodeError:
            raise QueryRefused(why="it holds half a character") from None
        self._send(Parse(sql, sorted(names)))
        return frozenset(self._expect(ViewsRead).views) & names

    def answer(
        self, sql: str, preparation: Preparation, parameters: Mapping[str, object]
    ) -> pa.RecordBatchReader:
        assert not parameters, "statements of our own run in our own process"
        self._files = preparation.distant
        steps = steps_of(preparation.steps)
        self._send(Prepare(sql, steps, preparation.paths, list(self._files)))
        schema = pa.ipc.read_schema(pa.py_buffer(self._expect(Columns).schema))
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        while isinstance(message := self._receive(), Rows):
            yield pa.ipc.read_record_batch(pa.py_buffer(message.batch), schema)
        if not isinstance(message, Finished):
            raise self._ended()

    def _expect(self, kind: type[Expected]) -> Expected:
        message = self._receive()
        if not isinstance(message, kind):
            raise self._ended()
        return message

    def _receive(self) -> FromProcess:
        """The next message that is not about files. Raises what the process says went wrong."""
        while True:
            try:
                message = self._connection.receive()
            except EOFError:
                raise self._ended() from None
            if isinstance(message, FileRequest):
                self._reads.submit(self._read, message)
            elif isinstance(message, Refused):
                raise _ERRORS.get(message.error, QueryFailed)(**message.facts)
            else:
                return message  # type: ignore[no-any-return]  # the decoder says what it is

    def _read(self, request: FileRequest) -> None:
        content = None
        with suppress(KeyError, OSError, PenstockError, ValueError):
            file = self._files[request.name]
            if request.length is None:
                content = b"%d" % file.size
            else:
                content = file.read(request.start, request.length)
        with suppress(OSError):
            self._connection.send(FileContent(request.request, content))

    def _send(self, message: msgspec.Struct) -> None:
        with suppress(OSError):  # `receive` says how it ended
            self._connection.send(message)

    def _ended(self) -> PenstockError:
        if time.monotonic() - self._started_s >= self._limits.seconds:
            return time_limit_reached(self._limits)
        return QueryFailed(
            why="it ended the process that ran it: it needed more memory than one query may use, "
            "or met a fault of the query engine. Write it differently"
        )

    def close(self) -> None:
        """The process ends when nobody listens."""
        self._connection.close()
        self._reads.shutdown(wait=False, cancel_futures=True)
