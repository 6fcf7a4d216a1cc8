"""Messages over a Unix socket between a room's two ends, with open files."""

import json
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from penstock_jobs.benchmarks.rooms import kernel
from penstock_jobs.benchmarks.rooms.files import Print, changes_in, read_plain, write_folder
from penstock_jobs.benchmarks.rooms.visible_files import PLACE, listeners, make_root

_LENGTH_BYTES = 8
_FILES_MAX = 64
_ANSWER_BYTES_MAX = 16 * 1024 * 1024


def send_order(to: socket.socket, order: object) -> None:
    """Into the room. Raises OSError."""
    _send(to, pickle.dumps(order), ())


def receive_order(come_from: socket.socket) -> Any:
    """Raises EOFError when the other end is gone."""
    payload, _ = _receive(come_from, None)
    return pickle.loads(payload)


def send_answer(to: socket.socket, answer: dict[str, Any], files: Sequence[int] = ()) -> None:
    """Out of the room. Raises OSError."""
    _send(to, json.dumps(answer).encode(), files)


def receive_answer(come_from: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """JSON, since a program in the room may have got hold of whoever wrote it. Raises EOFError."""
    payload, files = _receive(come_from, _ANSWER_BYTES_MAX)
    answer: dict[str, Any] = json.loads(payload)
    return answer, files


def _send(to: socket.socket, payload: bytes, files: Sequence[int]) -> None:
    socket.send_fds(to, [len(payload).to_bytes(_LENGTH_BYTES, "big")], files)
    to.sendall(payload)


def _receive(come_from: socket.socket, bytes_max: int | None) -> tuple[bytes, list[int]]:
    try:
        header, files, _, _ = socket.recv_fds(come_from, _LENGTH_BYTES, _FILES_MAX)
        header += _exactly(come_from, _LENGTH_BYTES - len(header)) if header else b""
    except ConnectionError as error:
        raise EOFError(str(error)) from error
    if not header:
        raise EOFError("the other end is gone")
    length = int.from_bytes(header, "big")
    if bytes_max is not None and length > bytes_max:
        raise EOFError("the other end sends what no room sends")
    return _exactly(come_from, length), files


def _exactly(come_from: socket.socket, length: int) -> bytes:
    payload = bytearray()
    while len(payload) < length:
        try:
            piece = come_from.recv(min(length - len(payload), 1 << 20))
        except ConnectionError as error:
            raise EOFError(str(error)) from error
        if not piece:
            raise EOFError("the other end is gone")
        payload += piece
    return bytes(payload)


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def used_bytes() -> int:
    """Of all but the first process. Pages that several share are counted once, as far as it
    matters: the quick sum counts them several times, and is believed where it is small."""
    ours = [name for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    quick = sum(_resident(name) for name in ours)
    return quick if quick < _SMALL_BYTES else sum(_share(name) for name in ours)


_SMALL_BYTES = 64 * 1024 * 1024


def _resident(name: str) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return 0


def _share(name: str) -> int:
    """Its part of the pages that it shares."""
    with suppress(OSError, ValueError), open(f"/proc/{name}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


_LOOK_SECONDS = 0.1
_CONNECTIONS_WAITING_MAX = 128
#: Of the user whom the program runs as, where that user is also ours: this process and the two
#: before it.
_OWN_PROCESSES = 3


def supervise(control: socket.socket, program: Mapping[str, Any], tied: int) -> NoReturn:
    try:
        kernel.die_with_parent(signal.SIGKILL)
        if select.select([tied], [], [], 0)[0]:  # the parent was gone before that
            os._exit(1)
        kernel.set_host_name("sandbox")
        kernel.raise_loopback(program["extra"])
        listening = [_listen(*one) for one in program["listen"]]
        make_root(program)
        kernel.hide_memory()
        send_answer(control, {"listening": True}, [one.fileno() for one in listening])
        for one in listening:
            one.close()
        answer = _watch(control, program)
        send_answer(control, {"ended": answer})
    except OSError as error:
        with suppress(OSError):
            send_answer(control, {"failed": str(error)})
    finally:
        os._exit(0)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_CONNECTIONS_WAITING_MAX)


def _watch(control: socket.socket, program: Mapping[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(program)
    ended, gone = os.pidfd_open(child), control.fileno()
    status, cut = None, None
    while status is None and cut is None:
        left = began + program["seconds"] - time.monotonic()
        wait_s = max(min(left, _LOOK_SECONDS), 0)
        if (
            gone in select.select([ended, gone], [], [], wait_s)[0]
        ):  # nothing is sent now: the other end is gone
            os._exit(1)
        status = _reap(child)
        if status is None and left <= 0:
            cut = "time"
        elif status is None and used_bytes() > program["memory_bytes"]:
            cut = "memory"
    return {"status": status, "cut": cut, "seconds": time.monotonic() - began}


def _reap(child: int) -> int | None:
    """Bury all that have ended; the status if the child is among them, as a shell tells it."""
    status = None
    with suppress(ChildProcessError):
        while True:
            pid, found = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(found)
                status = code if code >= 0 else 128 - code
    return status


def _become(program: Mapping[str, Any]) -> NoReturn:
    """The program itself."""
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        limit_program(program)
        owner = program["owner"]
        kernel.become(*owner) if owner is not None else kernel.drop_capabilities()
        kernel.gain_nothing_more()
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(f"{PLACE}/{program['cwd']}")
        _execute(program["command"], program["environment"])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(127)


def _execute(command: Sequence[str], environment: Mapping[str, str]) -> None:
    os.execvpe(command[0], list(command), dict(environment))


def limit_program(program: Mapping[str, Any]) -> None:
    processes = program["processes"] + (_OWN_PROCESSES if program["owner"] is None else 0)
    disk_bytes = program["disk_bytes"] + program["disk_bytes_more"]
    # Memory that a program may write to: what it only reserves costs nothing.
    for name, value in (
        (resource.RLIMIT_DATA, program["memory_bytes"]),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, 2 * disk_bytes),  # of files beside the disk: it is full before
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(name)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (limit, limit))


#: Nobody in a room needs what the kernel tells there, and it is there on every Linux.
BASE = "/sys"
#: What programs may write to, of the size that the bounds say; and what they may only read.
_SHARED, _GIVEN = f"{BASE}/shared", f"{BASE}/given"
ROOT = f"{BASE}/root"

_FILES_A_MIB = 256
_MIB = 1024 * 1024


def main(control: socket.socket) -> None:
    kernel.die_with_parent(signal.SIGKILL)
    try:
        holder = _open(control, receive_order(control))
        send_answer(control, {"ready": True})
        while True:
            name, arguments = receive_order(control)
            send_answer(control, {"done": getattr(holder, f"do_{name}")(**arguments)})
    except EOFError:
        return
    except OSError as error:
        send_answer(control, {"failed": str(error)})


def _open(control: socket.socket, opening: Mapping[str, Any]) -> "_Holder":
    kernel.unshare(kernel.NEW_NAMESPACE_USER)
    send_answer(control, {"unshared": True})
    receive_order(control)  # by then this process has its user again
    kernel.unshare(kernel.NEW_NAMESPACE_MOUNT)
    kernel.keep_mounts_here()
    flags = kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES
    kernel.mount("tmpfs", BASE, "tmpfs", flags, "mode=0755,size=1m")
    for place in (_SHARED, _GIVEN):
        os.mkdir(place)
        kernel.mount("tmpfs", place, "tmpfs", flags, _size_of(opening["disk_bytes"]))
    os.mkdir(ROOT)
    os.umask(0o022)
    return _Holder(control, opening)


def _size_of(disk_bytes: int) -> str:
    files = max(disk_bytes // _MIB, 16) * _FILES_A_MIB
    return f"mode=0755,size={disk_bytes},nr_inodes={files}"


class _Holder:
    def __init__(self, control: socket.socket, opening: Mapping[str, Any]) -> None:
        self._control = control
        self._opening = opening
        self._owner: tuple[int, int] | None = opening["owner"]
        self._places: dict[str, str] = {}
        self._put: dict[str, dict[str, Print]] = {}

    def do_put(self, folder: str, files: Any, writable: bool) -> None:
        place = self._places[folder] = f"{_SHARED if writable else _GIVEN}/{folder}"
        os.mkdir(place)
        write_folder(place, files)
        self._put[folder] = {file.path: Print.of(file) for file in files}
        if writable and self._owner is not None:
            os.chown(place, *self._owner)
            for below, folders, names in os.walk(place):
                for name in (*folders, *names):
                    os.chown(os.path.join(below, name), *self._owner, follow_symlinks=False)

    def do_run(self, **program: Any) -> dict[str, Any] | None:
        kernel.resize(_SHARED, _size_of(self._opening["disk_bytes"] + program["disk_bytes_more"]))
        # Asked here, where the network is that of the machine.
        hidden = [*self._opening["hidden"], *listeners()]
        program |= {**self._opening, "hidden": hidden, "root": ROOT, "places": self._places}
        child = os.fork()
        if child == 0:
            _separate(self._control, program)
        os.waitpid(child, 0)  # when it is gone, so is all that the program started
        return None

    def do_read(self, folder: str, name: str, bytes_max: int) -> str | None:
        found = read_plain(self._places[folder], name, bytes_max)
        return None if found is None else found.decode("latin-1")

    def do_changed(self, folder: str) -> list[str]:
        found = changes_in(self._places[folder], self._put[folder])
        shown = [path.encode(errors="replace").decode() for path in found]
        return shown[: self._opening["changes_max"]]


def _separate(control: socket.socket, program: Mapping[str, Any]) -> None:
    """A process between: namespaces for PIDs begin with the children of whoever makes them."""
    kernel.die_with_parent(signal.SIGKILL)
    try:
        kernel.unshare(kernel.NEW_NAMESPACE_MOUNT | kernel.NEW_NAMESPACES_REST)
        tied, end = os.pipe()
        first = os.fork()
        if first == 0:
            os.close(end)
            supervise(control, program, tied)
        os.close(tied)
        os.waitpid(first, 0)
    except OSError as error:
        send_answer(control, {"failed": str(error)})
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
