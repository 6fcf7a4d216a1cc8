"""What a room is. It has named folders. Files are put into a folder from outside, programs run in
the room one after another, and what they left is read from outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from penstock_jobs.benchmarks.rooms.files import File

#: The limit at which a program was ended.
ProgramCut = Literal["time", "memory"]
#: So many changed files are named.
CHANGES_MAX = 100


@dataclass(frozen=True)
class RoomLimits:
    """For all programs in a room together."""

    memory_bytes: int
    processes: int
    disk_bytes: int


@dataclass(frozen=True)
class PathRules:
    """What programs may see of the machine, besides its programs. All paths are absolute."""

    #: Nobody sees what is in them.
    hidden: Sequence[str] = ()
    #: Readable though they lie in a place that is hidden by itself, such as /tmp.
    visible: Sequence[str] = ()


@dataclass(frozen=True)
class RoomProgram:
    command: Sequence[str]
    #: Folders of the room: the working directory, HOME and /tmp.
    cwd: str
    home: str
    scratch: str
    seconds: float
    environment: Mapping[str, str] = field(repr=False)
    #: Further folders that it sees: whether it may write there.
    folders: Mapping[str, bool] = field(default_factory=dict)
    #: HOST:PORT that it may reach; nothing else.
    addresses: Sequence[str] = ()
    #: Disk space besides that of the room's limits.
    disk_bytes_more: int = 0


@dataclass(frozen=True)
class ProgramEnd:
    #: As a shell reports it: 128 + N for the signal N. None where it was cut off.
    status: int | None
    cut: ProgramCut | None
    seconds: float
    #: The middle of a long output is left out.
    output: str
    #: Addresses that it dialled and that never answered.
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
        """The paths of files that are not as they were put into the folder."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_error: object) -> None: ...


class Excerpt:
    """The beginning and the end of an output, whatever its length."""

    def __init__(self, bytes_max: int) -> None:
        self._half = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, piece: bytes) -> None:
        self._total += len(piece)
        space = max(self._half - len(self._head), 0)
        self._head += piece[:space]
        self._tail += piece[space:][-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = self._tail[-self._half :]
        left_out = self._total - len(self._head) - len(tail)
        middle = f"\n… {left_out} bytes left out …\n".encode() if left_out > 0 else b""
        return (bytes(self._head) + middle + bytes(tail)).decode(errors="replace")
