"""Watched edits and due observations, the observer's memory, and the files that it may read."""

import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from penstock.core.errors import InvalidInput
from penstock.core.files import make_directory, open_private
from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.history.git_repository import (
    BranchHead,
    Repository,
    branch_head,
    ignored_paths,
    tracked_paths,
)
from penstock_jobs.rewards.history.session_commits import repository_of

#: By horizon in seconds, the begin and end of its window after an edit, in microseconds.
Windows = Mapping[int, tuple[int, int]]


class WatchedEdit(Struct):
    session_id: str
    key: str
    edit_id: str | None
    name: str
    path: str
    project: str | None
    ts_us: int
    branch: str | None = None
    #: The file existed once, so if it is missing it was deleted.
    was_there: bool = False
    #: Horizons that were observed, or are over.
    answered: list[int] = field(default_factory=list)


class DueObservation(Struct):
    """A due observation of a file, for edits of one session. `why` distinguishes it there."""

    edits: list[WatchedEdit]
    why: str

    @property
    def first(self) -> WatchedEdit:
        return self.edits[0]

    def event(
        self, ts_us: int, facts: Mapping[str, Any], *, branch_changed: bool
    ) -> dict[str, Any]:
        first, keys = self.first, [edit.key for edit in self.edits]
        identity = msgspec.json.encode([first.name, self.why, keys])
        payload: dict[str, Any] = {"path": first.name, **facts}
        if branch_changed:
            payload["branch_changed"] = True
        if ids := [edit.edit_id for edit in self.edits if edit.edit_id]:
            payload["edit_ids"] = ids
        event = {
            "session_id": first.session_id,
            "event_id": f"observe:{xxh3_128_hexdigest(identity)}",
            "source": "observe",
            "ts": ts_us,
            "type": "file_observed",
            "payload": payload,
        }
        return event | ({"project": first.project} if first.project else {})


def windows_of(definition: Definition) -> Windows:
    windows: dict[int, tuple[int, int]] = {}
    for term in definition.terms:
        if isinstance(term.parameters, EditParameters):
            terms = term.parameters.terms()
            pairs = zip(term.parameters.horizons_s, terms.windows_us, strict=True)
            windows |= {horizon_s: window for horizon_s, window in pairs if horizon_s}
    return windows


def due_observations(
    edits: Iterable[WatchedEdit], windows: Windows, now_us: int
) -> list[DueObservation]:
    due: dict[tuple[str, str], DueObservation] = {}
    for edit in edits:
        for horizon_s, (begin, end) in windows.items():
            age_us = now_us - edit.ts_us
            if horizon_s in edit.answered or age_us < begin:
                continue
            edit.answered.append(horizon_s)
            if age_us <= end:
                look = due.setdefault((edit.session_id, edit.name), DueObservation([], "horizons"))
                look.edits += [] if edit in look.edits else [edit]
                look.why += f" {horizon_s}"
    return [*due.values()]


def commit_observations(edits: Iterable[WatchedEdit], commit: str) -> list[DueObservation]:
    due: dict[tuple[str, str], DueObservation] = {}
    for edit in edits:
        look = due.setdefault((edit.session_id, edit.name), DueObservation([], f"commit {commit}"))
        look.edits.append(edit)
    return [*due.values()]


def next_us(edits: Sequence[WatchedEdit], windows: Windows) -> int | None:
    times = (
        edit.ts_us + begin
        for edit in edits
        for horizon_s, (begin, _end) in windows.items()
        if horizon_s not in edit.answered
    )
    return min(times, default=None)


class ObserverMemory(Struct):
    """The state between rounds. `unsent` events may have arrived already; they are sent again."""

    edits: list[WatchedEdit] = field(default_factory=list)
    commit: str | None = None
    #: Edits received since may be new.
    since_us: int = 0
    asked_us: int = 0
    unsent: list[str] = field(default_factory=list)


class MemoryFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> ObserverMemory:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=ObserverMemory)
        except (FileNotFoundError, msgspec.MsgspecError):
            return ObserverMemory()

    def write(self, memory: ObserverMemory) -> None:
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        with open_private(unfinished, "xb") as file:
            file.write(msgspec.json.encode(memory))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._path)


@contextmanager
def kept_memory(folder: Path, lake: str) -> Iterator[MemoryFile]:
    """Lock the memory of a folder and lake for this process. Raises InvalidInput if another process
    has it, or if it cannot be written."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    home = Path(state, "penstock", "observe").expanduser()
    path = home / f"{xxh3_64_hexdigest(f'{folder} {lake}'.encode())}.json"
    try:
        make_directory(home)
        lock = open_private(path.with_suffix(".lock"), "a")
    except OSError as error:
        raise InvalidInput(what=f"The folder {home}", why=error.strerror or str(error)) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            why = "another `penstock observe` watches it"
            raise InvalidInput(what=f"The folder {folder}", why=why) from None
        yield MemoryFile(path)


FILE_BYTES_MAX = 512 * 1024

Unseen = Literal["outside of the folder", "ignored by git", "too large", "not text", "unreadable",
                 "never there"]  # fmt: skip


class SeenFile(msgspec.Struct, frozen=True):
    """The payload of an observation, or the reason why there is none."""

    facts: dict[str, Any]
    why: Unseen | None = None


class WorkTree:
    """The observed folder. Senders of events may invent names of files, so nothing outside the
    folder is read, even through links, and nothing that Git ignores."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))  # noqa: PTH100  # with its links, as in sessions
        if not self.folder.is_dir():
            raise InvalidInput(what=f"The folder {folder}", why="it does not exist")
        self._real = self.folder.resolve()
        root = repository_of(str(self._real))
        self._repository = Repository(root) if root is not None else None

    def head(self) -> BranchHead | None:
        return branch_head(self._repository) if self._repository is not None else None

    def is_there(self) -> bool:
        """Whether the folder exists. Files of an unmounted folder are not deleted."""
        return self._real.is_dir()

    def look(self, paths: Collection[str], were_there: Collection[str]) -> dict[str, SeenFile]:
        """Read files by absolute path. A file of `were_there` that is missing was deleted."""
        places = {path: self._place(path) for path in paths}
        inside = {path: place for path, place in places.items() if place is not None}
        ignored, tracked = set[str](), set[str]()
        if self._repository is not None and inside:
            names = [str(place) for place in inside.values()]
            ignored = ignored_paths(self._repository, names)
            tracked = tracked_paths(self._repository, names)
        seen_files = {}
        for path, place in places.items():
            if place is None:
                seen_files[path] = SeenFile({}, "outside of the folder")
            elif str(place) in ignored:
                seen_files[path] = SeenFile({}, "ignored by git")
            else:
                seen_files[path] = _read(place, path in were_there or str(place) in tracked)
        return seen_files

    def _place(self, path: str) -> Path | None:
        """The real path of a file, if it is below the folder and not one of Git's own."""
        try:
            place = Path(path).parent.resolve() / Path(path).name
            real = place.resolve()
        except (OSError, ValueError, RuntimeError):
            return None
        if not real.is_relative_to(self._real) or not place.is_relative_to(self._real):
            return None
        return None if ".git" in place.parts or place.name in ("", "..") else place


def _read(place: Path, was_there: bool) -> SeenFile:
    try:
        file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return SeenFile({"deleted": True}) if was_there else SeenFile({}, "never there")
    except OSError:  # such as a link
        return SeenFile({}, "unreadable")
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return SeenFile({}, "unreadable")
        with os.fdopen(file, "rb", closefd=False) as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError:
        return SeenFile({}, "unreadable")
    finally:
        os.close(file)
    if len(content) > FILE_BYTES_MAX:
        return SeenFile({}, "too large")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return SeenFile({}, "not text")
    return SeenFile({}, "not text") if "\0" in text else SeenFile({"text": text})
