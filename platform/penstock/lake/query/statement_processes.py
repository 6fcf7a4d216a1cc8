"""Statements in processes of their own: the server's end. A statement may end its process, and
nothing else."""

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import pyarrow as pa

from penstock.backends.execution.guarded_process import Channel, GuardedProcess
from penstock.core.errors import PenstockError
from penstock.lake import QueriesUnavailable, QueryFailed, QueryRefused
from penstock.lake.query.pinned_files import DistantFile
from penstock.lake.query.row_formats import WireFormat
from penstock.lake.query.statements import (
    Preparation,
    StatementLimits,
    memory_limit_reached,
    time_limit_reached,
)

#: Bytes of an answer in one message.
PIECE_BYTES_MAX = 256 << 10
_REST_BYTES_MAX = 64 << 10


class Parse(msgspec.Struct, tag=True, frozen=True):
    sql: str
    names: list[str]


class Prepare(msgspec.Struct, tag=True, frozen=True):
    sqls: list[str]
    form: WireFormat
    steps: list[tuple[str, memoryview | list[str | list[str]]]]
    paths: list[str]
    #: Files that the server reads for the process, by their sizes.
    distant: list[str]


class FileContent(msgspec.Struct, tag=True, frozen=True):
    """A piece of a file; None if it could not be read."""

    request: int
    content: bytes | None


class ViewsRead(msgspec.Struct, tag=True, frozen=True):
    views: list[str]


class Piece(msgspec.Struct, tag=True, frozen=True):
    content: memoryview


class Finished(msgspec.Struct, tag=True, frozen=True):
    """The end of a whole answer."""


class StatementRefused(msgspec.Struct, tag=True, frozen=True):
    why: str
    by_guard: bool


class LimitMet(msgspec.Struct, tag=True, frozen=True):
    kind: Literal["time", "memory"]


class FileRequest(msgspec.Struct, tag=True, frozen=True):
    """A request for bytes of a file; without a length, for its size as text."""

    request: int
    name: str
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    length: Annotated[int, msgspec.Meta(ge=0)] | None = None


ToProcess = Parse | Prepare | FileContent
FromProcess = ViewsRead | Piece | Finished | StatementRefused | LimitMet | FileRequest
FROM_PROCESS_BYTES_MAX = PIECE_BYTES_MAX + _REST_BYTES_MAX


class Connection:
    def __init__(
        self, end: socket.socket, expected: Any, *, message_bytes_max: int | None = None
    ) -> None:
        self._channel = Channel(end)
        self._message_bytes_max = message_bytes_max
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(expected)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_table)
        self.end, self.close = self._channel.end, self._channel.close

    def send(self, message: msgspec.Struct) -> None:
        self._channel.send(self._encoder.encode(message))

    def receive(self) -> Any:
        """Receive a message. Raises EOFError if the other end is gone or breaks the protocol."""
        try:
            return self._decoder.decode(self._channel.receive(self._message_bytes_max))
        except msgspec.MsgspecError as error:
            raise EOFError from error


def _encode_table(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def decode_table(content: memoryview) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_SERVER_MODULE = "penstock.lake.query.statement_server"
_START_SECONDS_MAX = 60.0
#: The fork server ends a process beyond its time. This much later we stop listening.
_SILENCE_SECONDS_MAX = 10.0
#: Pieces of files that one statement waits for at the same time.
_READS_MAX = 4


class StatementProcesses:
    def __init__(self, *, distant_files: bool = False, log_format: str = "text") -> None:
        """Prepare; the first statement starts the fork server. `distant_files` says that the lake's
        files are in a remote store."""
        self._log_format = log_format
        self._preload = ["fsspec"] if distant_files else []
        self._lock = threading.Lock()
        self._process: GuardedProcess | None = None

    def open(self, limits: StatementLimits) -> "ProcessStatement":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._send(limits, theirs)
            except OSError:  # the fork server was ended from outside: one more
                try:
                    self._send(limits, theirs)
                except OSError:
                    ours.close()
                    raise QueriesUnavailable from None
        ours.settimeout(limits.seconds + _SILENCE_SECONDS_MAX)
        return ProcessStatement(ours, limits)

    def _send(self, limits: StatementLimits, end: socket.socket) -> None:
        with self._lock:
            process = self._process
            if process is None or process.has_ended:
                process = self._start()
            try:
                socket.send_fds(process.end, [msgspec.json.encode(limits)], [end.fileno()])
            except OSError:
                self._stop()
                raise

    def _start(self) -> GuardedProcess:
        self._stop()
        # The engine has threads of its own.
        environment = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        process = self._process = GuardedProcess(
            _SERVER_MODULE,
            *(self._log_format, *self._preload),
            environment=environment,
            kind=socket.SOCK_SEQPACKET,
        )
        process.end.settimeout(_START_SECONDS_MAX)
        if not process.end.recv(1):
            raise ConnectionError("the fork server ended before it was ready")
        return process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
        self._process = None

    def close(self) -> None:
        with self._lock:
            self._stop()


class ProcessStatement:
    def __init__(self, end: socket.socket, limits: StatementLimits) -> None:
        self._connection = Connection(end, FromProcess, message_bytes_max=FROM_PROCESS_BYTES_MAX)
        self._limits = limits
        self._started_s = time.monotonic()
        self._sql = ""
        self._paths: list[str] = [limits.spill]
        self._files: Mapping[str, DistantFile] = {}
        self._reads = ThreadPoolExecutor(_READS_MAX, "statement-files")

    def views(self, sql: str, names: frozenset[str]) -> frozenset[str]:
        try:
            sql.encode()
        except UnicodeEncodeError:
            raise QueryRefused(why="it holds half a character") from None
        self._sql = sql
        self._send(Parse(sql, sorted(names)))
        message = self._receive()
        if not isinstance(message, ViewsRead):
            raise self._ended()
        return frozenset(message.views) & names

    def write(
        self, sqls: Sequence[str], preparation: Preparation, form: WireFormat, out: BinaryIO
    ) -> None:
        self._files = preparation.distant
        self._paths += preparation.paths
        steps: Any = preparation.steps  # tables are encoded on their way
        self._send(Prepare(list(sqls), form, steps, preparation.paths, list(self._files)))
        while isinstance(message := self._receive(), Piece):
            out.write(message.content)
        if not isinstance(message, Finished):
            raise self._ended()

    def _receive(self) -> FromProcess:
        """Receive the next message that is not about files. Raises the failure of the process."""
        while True:
            try:
                message = self._connection.receive()
            except EOFError:
                raise self._ended() from None
            if isinstance(message, FileRequest):
                self._reads.submit(self._read, message)
            elif isinstance(message, StatementRefused):
                error = QueryRefused if message.by_guard else QueryFailed
                raise error(why=without_inside(message.why, self._sql, self._paths))
            elif isinstance(message, LimitMet):
                reached = time_limit_reached if message.kind == "time" else memory_limit_reached
                raise reached(self._limits)
            else:
                return message  # type: ignore[no-any-return]  # the decoder says what it is

    def _read(self, request: FileRequest) -> None:
        content = None
        with suppress(Exception):  # the process is told that there is nothing
            file = self._files[request.name]
            if request.length is None:
                content = b"%d" % file.size
            else:
                length = min(request.length, max(0, file.size - request.start))
                content = file.read(request.start, length)
        self._send(FileContent(request.request, content))

    def _send(self, message: msgspec.Struct) -> None:
        with suppress(OSError):  # `receive` says how it ended
            self._connection.send(message)

    def _ended(self) -> PenstockError:
        if time.monotonic() - self._started_s >= self._limits.seconds:
            return time_limit_reached(self._limits)
        return QueryFailed(
            why="its process ended: it needed more memory than a query may use, or met a fault of "
            "the query engine. Write it differently"
        )

    def end(self) -> None:
        self._connection.end()

    def close(self) -> None:
        self._connection.close()
        self._reads.shutdown(wait=False, cancel_futures=True)


def without_inside(text: str, sql: str, paths: Sequence[str]) -> str:
    """Remove paths of the service, addresses of memory and stacks from a message of the engine,
    unless the user wrote them."""
    text = text.partition("\n\nStack Trace")[0]
    for path in sorted({*paths, *map(os.path.dirname, paths), sys.prefix}, key=len, reverse=True):
        if path and path not in sql:
            text = text.replace(path, "…")
    return _ADDRESS.sub(lambda found: found[0] if found[0] in sql else "…", text)
