"""The folder that is observed: which files may be read, what they hold, and where its branch is.

Names of files come from sessions, and whoever may send events may invent them. So nothing outside
of the folder is read, whatever links say, nor what Git ignores, such as files of secrets."""

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.errors import InvalidInput
from penstock_jobs.importers.commits import repository_of
from penstock_jobs.rewards.git_repository import (
    BranchHead,
    Repository,
    branch_head,
    ignored_paths,
    tracked_paths,
)

#: A longer file is left out, as editors leave it: events have a limit.
FILE_BYTES_MAX = 512 * 1024

Unseen = Literal["outside of the folder", "ignored by git", "too large", "no text", "unreadable",
                 "never there"]  # fmt: skip


@dataclass(frozen=True)
class Sight:
    seen: dict[str, Any]
    why: Unseen | None = None


class WorkTree:
    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))  # noqa: PTH100  # as sessions name it: with its links
        if not self.folder.is_dir():
            raise InvalidInput(what=f"The folder {folder}", why="it is not there")
        self._real = self.folder.resolve()
        root = repository_of(str(self._real))
        self._repository = Repository(root) if root is not None else None

    def head(self) -> BranchHead | None:
        return branch_head(self._repository) if self._repository is not None else None

    def is_there(self) -> bool:
        """A folder that is not mounted has no deleted files."""
        return self._real.is_dir()

    def look(self, paths: Collection[str], were_there: Collection[str]) -> dict[str, Sight]:
        """Look at files by absolute path; those that were there and are gone are deleted."""
        places = {path: self._place(path) for path in paths}
        inside = {path: place for path, place in places.items() if place is not None}
        ignored: set[str] = set()
        tracked: set[str] = set()
        if self._repository is not None and inside:
            names = [str(place) for place in inside.values()]
            ignored = ignored_paths(self._repository, names)
            tracked = tracked_paths(self._repository, names)
        sights = {}
        for path, place in places.items():
            if place is None:
                sights[path] = Sight({}, "outside of the folder")
            elif str(place) in ignored:
                sights[path] = Sight({}, "ignored by git")
            else:
                sights[path] = _read(place, path in were_there or str(place) in tracked)
        return sights

    def _place(self, path: str) -> Path | None:
        """Where it is in truth, if that is below the folder and no file of Git's own."""
        try:
            place = Path(path).parent.resolve() / Path(path).name
            real = place.resolve()
        except (OSError, ValueError, RuntimeError):
            return None
        if not real.is_relative_to(self._real) or not place.is_relative_to(self._real):
            return None
        return None if ".git" in place.parts or place.name in ("", "..") else place


def _read(place: Path, was_there: bool) -> Sight:
    try:
        file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return Sight({"deleted": True}) if was_there else Sight({}, "never there")
    except OSError:  # a link, among others
        return Sight({}, "unreadable")
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return Sight({}, "unreadable")
        with os.fdopen(file, "rb", closefd=False) as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError:
        return Sight({}, "unreadable")
    finally:
        os.close(file)
    if len(content) > FILE_BYTES_MAX:
        return Sight({}, "too large")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Sight({}, "no text")
    return Sight({}, "no text") if "\0" in text else Sight({"text": text})
