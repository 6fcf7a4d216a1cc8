"""The files of a checkpoint where it was registered, to be read one after another."""

import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from penstock.checkpoints.digests import files_below, path_of
from penstock.fleet.errors import FetchFailed
from penstock.fleet.sources import Piece
from penstock.settings import Settings
from penstock.storage import open_store


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class SourceFile:
    """`path` is where it goes, within the copy's folder."""

    path: str
    size: int
    open: Callable[[], AbstractContextManager[Readable]]


def files_of(piece: Piece, settings: Settings) -> list[SourceFile]:
    """Raises FetchFailed, InvalidInput, OSError, StoreUnreachable, StoreRefused, SettingInvalid,
    ExtraMissing."""
    scheme = urlsplit(piece.uri).scheme
    if scheme in ("", "file"):
        found = list(_in_path(path_of(piece.uri)))
    elif scheme == "s3":
        found = list(_in_bucket(piece.uri, settings))
    else:
        why = f"{scheme}: is not fetched; a path, file:// and s3:// are"
        raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why=why)
    for one in found:
        if why := _unfit(one.path):
            raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why=why)
    if not found:
        raise FetchFailed(checkpoint=piece.name, uri=piece.uri, why="there are no files")
    return found


def _in_path(path: Path) -> Iterator[SourceFile]:
    below = list(files_below(path)) if path.is_dir() else [path]
    for file in below:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a regular file", str(file))
        name = file.relative_to(path).as_posix() if file != path else path.name
        yield SourceFile(name, status.st_size, _opener(file))


def _opener(file: Path) -> Callable[[], AbstractContextManager[Readable]]:
    return lambda: file.open("rb")


def _in_bucket(uri: str, settings: Settings) -> Iterator[SourceFile]:
    """As digests are taken: a folder is what has objects below it, else it is an object."""
    folder = open_store(replace(settings, store_url=uri))
    found = sorted(folder.list())
    if found:
        for one in found:
            yield SourceFile(one.name, one.size, _object_opener(folder, one.name))
        return
    address = urlsplit(uri)
    above, _, name = address.path.rstrip("/").rpartition("/")
    store = open_store(replace(settings, store_url=address._replace(path=above).geturl()))
    with store.open(unquote(name)) as file:
        size = file.size()
    yield SourceFile(unquote(name), size, _object_opener(store, unquote(name)))


def _object_opener(store: Any, name: str) -> Callable[[], AbstractContextManager[Readable]]:
    return lambda: store.open(name)


def _unfit(name: str) -> str:
    """Why a file of this name cannot be written into a folder; nothing where it can."""
    path = PurePosixPath(name)
    parts = name.split("/")
    if path.is_absolute() or "\0" in name or any(part in ("", ".", "..") for part in parts):
        return f"its file {name!r} would lie outside of its folder"
    return ""
