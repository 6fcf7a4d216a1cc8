"""The process of a statement: forked from one that has loaded the engine and nothing else.

`main` is the fork server. It gets one socket for each statement and forks; the child limits itself
by the kernel before it reads what a user wrote. It can open no network and no files but those of
the statement's preparation, and ends at its time limit however deep in the engine it is.
"""

import ctypes
import errno
import gc
import itertools
import os
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from importlib import import_module

import duckdb
import msgspec

from penstock.errors import PenstockError
from penstock.execution.confinement import (
    COMMON_FILES,
    CallRule,
    KernelLimits,
    forbid_calls,
    limit_files,
    limit_resources,
)
from penstock.lake.statement_messages import (
    Columns,
    Connection,
    FileContent,
    FileRequest,
    Finished,
    Parse,
    Prepare,
    Rows,
    ToProcess,
    ViewsRead,
    decode_table,
    refusal_of,
)
from penstock.lake.statements import (
    LocalStatement,
    Preparation,
    StatementLimits,
    memory_limit_reached,
)

#: The engine stops a statement itself at the limit. Where it cannot, the kernel does so.
GRACE_SECONDS = 0.5
#: What Arrow, Python and the engine's own structures need beside the engine's memory limit.
SPARE_BYTES = 512 << 20
_OPEN_FILES_MAX = 1024
#: Taking events in comes first.
_NICE = 10
_SIGNAL_AT_PARENTS_END = 1
_FORBIDDEN = [
    CallRule(call, errno.EPERM)
    for call in (
        "accept", "accept4", "bind", "bpf", "connect", "execve", "execveat", "io_uring_setup",
        "keyctl", "listen", "mount", "open_by_handle_at", "perf_event_open", "process_vm_readv",
        "process_vm_writev", "ptrace", "setns", "socket", "unshare", "userfaultfd",
    )
]  # fmt: skip


def main() -> None:
    """Fork a process for each socket that comes, until the caller is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    duckdb.connect(":memory:").close()  # what it loads at first is loaded once
    for module in sys.argv[2:]:
        with suppress(ImportError):  # its extra is not installed: the first statement says so
            import_module(module)
    gc.freeze()
    control.sendall(b"r")
    while True:
        content, ends, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not content:
            return
        if os.fork() == 0:
            control.close()
            _end_with_parent()
            limits = msgspec.json.decode(content, type=StatementLimits)
            _serve(socket.socket(fileno=ends[0]), limits)
            os._exit(0)
        os.close(ends[0])


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, signal.SIGKILL, 0, 0, 0)


def _serve(end: socket.socket, limits: StatementLimits) -> None:
    connection = Connection(end, ToProcess)
    os.nice(_NICE)
    os.umask(0o077)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds + GRACE_SECONDS)
    limit_resources(
        KernelLimits(
            memory_bytes=limits.memory_bytes + SPARE_BYTES,
            cpu_seconds=int((limits.seconds + 1) * limits.threads) + 1,
            open_files=_OPEN_FILES_MAX,
            file_bytes=limits.spill_bytes,
        )
    )
    forbid_calls(_FORBIDDEN)
    with suppress(EOFError, OSError):
        try:
            _answer(connection, limits)
        except PenstockError as error:
            connection.send(refusal_of(error))
        except MemoryError:
            connection.send(refusal_of(memory_limit_reached(limits)))


def _answer(connection: Connection, limits: StatementLimits) -> None:
    statement = LocalStatement(limits)
    parse: Parse = connection.receive()
    views = statement.views(parse.sql, frozenset(parse.names))
    connection.send(ViewsRead(sorted(views)))
    prepare: Prepare = connection.receive()
    distant = _DistantFiles(connection)
    threading.Thread(target=distant.listen, daemon=True).start()
    limit_files([*prepare.paths, *COMMON_FILES], [limits.spill])
    files = {name: _DistantFile(distant, name) for name in prepare.distant}
    preparation = Preparation(files, paths=prepare.paths)
    for text, content in prepare.steps:
        if isinstance(content, bytes):
            preparation.register(text, decode_table(content))
        else:
            preparation.execute(text, content)
    batches = statement.answer(prepare.sql, preparation, {})
    connection.send(Columns(batches.schema.serialize().to_pybytes()))
    for batch in batches:
        connection.send(Rows(batch.serialize().to_pybytes()))
    connection.send(Finished())


class _DistantFiles:
    """Files that the server reads for this process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[bytes]] = {}

    def listen(self) -> None:
        """Hand out what comes, until the server is gone: then nobody wants the answer."""
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


if __name__ == "__main__":
    main()
