"""TODO: what this chapter is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from penstock_jobs.benchmarks.rooms.files import File

#: How a program ended that did not end by itself.
ProgramCut = Literal["time", "memory"]


@dataclass(frozen=True)
class RoomLimits:
    """What a room gives to all programs in it together."""

    memory_bytes: int
    processes: int
    disk_bytes: int


@dataclass(frozen=True)
class PathRules:
    """What programs may see of the machine, besides its programs: all are absolute paths."""

    #: Nobody sees what is in them.
    hidden: Sequence[str] = ()
    #: Readable though they lie in a place that is hidden by itself, such as /tmp.
    visible: Sequence[str] = ()


@dataclass(frozen=True)
class RoomProgram:
    command: Sequence[str]
    #: Folders of the room: where it stands, and where its HOME and /tmp are.
    cwd: str
    home: str
    scratch: str
    seconds: float
    environment: Mapping[str, str] = field(repr=False)
    #: Further folders that it sees: whether it may write there.
    folders: Mapping[str, bool] = field(default_factory=dict)
    #: HOST:PORT that it may reach; nothing else.
    addresses: Sequence[str] = ()
    #: More room on the disk than the bounds say.
    disk_bytes_more: int = 0


@dataclass(frozen=True)
class ProgramEnd:
    #: As a shell tells it: 128 + N for the signal N. None where it was cut off.
    status: int | None
    cut: ProgramCut | None
    seconds: float
    #: Its output, the middle left out where it was long.
    output: str
    #: Addresses that nobody answered at, and never did.
    unreachable: tuple[str, ...] = ()


class Room(Protocol):
    """Use as a context manager: afterwards nothing of it is left."""

    def path(self, folder: str) -> str:
        """Where programs find a folder."""
        ...

    def put(self, folder: str, files: Sequence[File], *, writable: bool) -> None:
        """Make a folder with these files in it. Raises RoomFailed."""
        ...

    def run(self, program: RoomProgram) -> ProgramEnd:
        """Until it and all that it started have ended. Raises RoomFailed, InvalidInput."""
        ...

    def read(self, folder: str, name: str, bytes_max: int) -> bytes | None:
        """A plain file that a program left; None where there is none, or a larger one."""
        ...

    def changed(self, folder: str) -> list[str]:
        """The files of a folder that are not as they were put there, by path."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_error: object) -> None: ...


class Excerpt:
    def __init__(self, bytes_max: int) -> None:
        self._half = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, piece: bytes) -> None:
        self._total += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room] if room > 0 else b""
        self._tail += piece[max(room, 0) :][-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = self._tail[-self._half :]
        left_out = self._total - len(self._head) - len(tail)
        middle = f"\n… {left_out} bytes left out …\n".encode() if left_out > 0 else b""
        return (bytes(self._head) + middle + bytes(tail)).decode(errors="replace")
