"""Backup of an embedded lake to a directory or a tar file, and its restore.

A backup is as of one write transaction of the metadata database. No commit moves an offset
meanwhile, so the log's files, which are opened then, hold all events that the database lacks. Files
of the lake never change, and upkeep removes none before it is copied.
"""

import hashlib
import io
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import sqlalchemy as sa

from penstock.backends.database import migrations
from penstock.backends.database.engine import parse_database_address
from penstock.core.errors import InvalidInput
from penstock.core.files import make_directory, open_private, relative_name, sync_directory
from penstock.core.settings import FILE_NAME, Settings, load_settings
from penstock.lake import BackupDamaged, BackupNotEmbedded, LakeDamaged
from penstock.lake.catalog import file_tables
from penstock.lake.lake import RESTORING, Lake
from penstock.lake.segments import segment_name
from penstock.lake.tables import log_partition, segment_intent
from penstock.lake.upkeep.rounds import upkeep_by_hand
from penstock.lake.upkeep.verification import verify

MANIFEST = "backup.json"
_FORMAT = 1
_DATABASE, _LOG, _STORE = "penstock.db", "log", "lake"
_SINGLE_FILES = (FILE_NAME, "secret.key", "signing.key", "signing.key.old")
_UNFINISHED = ".unfinished"
#: Folders that a file system puts into its own root.
_NOT_OURS = frozenset({"lost+found"})
_PIECE_BYTES = 1024 * 1024
_MANIFEST_BYTES_MAX = 1024 * 1024 * 1024

#: Takes the number of bytes copied since the last call.
Progress = Callable[[int], object]
#: Writes a file by its name and size.
_Write = Callable[[str, int, BinaryIO], None]


class BackedUpFile(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Backup(msgspec.Struct):
    """The manifest. It is written last: a copy without it is unfinished."""

    format: int
    penstock: str
    snap: int
    files: dict[str, BackedUpFile]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


# Backing up


def back_up(lake: Lake, target: Path, progress: Progress = lambda _count: None) -> Backup:
    """Copy the lake to a new directory, or a new file named *.tar. Raises BackupNotEmbedded,
    InvalidInput, UpkeepBusy."""
    _require_embedded(lake.settings)
    data = lake.settings.data
    if target.absolute().is_relative_to(data):
        raise InvalidInput(what=str(target), why="it lies in the lake")
    if target.exists():
        raise InvalidInput(what=str(target), why="it exists already; name another")
    unfinished = target.with_name(target.name + _UNFINISHED)
    _remove(unfinished)
    make_directory(target.absolute().parent)
    files: dict[str, BackedUpFile] = {}
    with upkeep_by_hand(lake), ExitStack() as closing:
        moment = closing.enter_context(_moment(lake))
        write = closing.enter_context(_writer(unfinished, as_tar=target.suffix == ".tar"))

        def add(name: str, size: int, content: BinaryIO) -> None:
            reader = _Reader(content, size, progress)
            write(name, size, reader)  # type: ignore[arg-type]  # it reads, which is all
            files[name] = BackedUpFile(size, reader.finish(name))

        _add_all(lake, moment, add, unfinished)
        backup = Backup(_FORMAT, version("penstock"), moment.snap, files)
        manifest = msgspec.json.encode(backup)
        write(MANIFEST, len(manifest), io.BytesIO(manifest))
    unfinished.rename(target)
    sync_directory(target.absolute().parent)
    return backup


class _Moment(NamedTuple):
    #: In a transaction as of the moment.
    database: sqlite3.Connection
    #: The log's files: name, file and size at the moment.
    log: list[tuple[str, BinaryIO, int]]
    snap: int


@contextmanager
def _moment(lake: Lake) -> Iterator[_Moment]:
    data = lake.settings.data
    with ExitStack() as closing:
        place = str(parse_database_address(lake.settings.database_url).database)
        database = sqlite3.connect(place, isolation_level=None)
        closing.callback(database.close)
        log: list[tuple[str, BinaryIO, int]] = []
        with lake.database.write():
            database.execute("BEGIN")
            [(snap,)] = database.execute("SELECT snap FROM lake_head").fetchall()
            for path in sorted((data / _LOG).rglob("*")):
                if path.is_file() and path.suffix != ".lock":
                    file = closing.enter_context(path.open("rb"))
                    size = os.fstat(file.fileno()).st_size
                    log.append((path.relative_to(data).as_posix(), file, size))
        yield _Moment(database, log, snap)


def _add_all(lake: Lake, moment: _Moment, add: _Write, beside: Path) -> None:
    data = lake.settings.data
    copied = beside.with_name(beside.name + ".database")
    _remove(copied)
    try:
        with sqlite3.connect(copied) as copy:
            moment.database.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, with all of it
        copy.close()
        names = _lake_files(lake, copied)
        _add_file(add, _DATABASE, copied)
    finally:
        _remove(copied)
    for name, file, size in moment.log:
        add(name, size, file)
    for name in sorted(names):
        try:
            _add_file(add, f"{_STORE}/{name}", data / _STORE / name)
        except FileNotFoundError:
            if names[name]:
                raise LakeDamaged(path=name, why="the file is missing") from None
    for name in _SINGLE_FILES:
        if (data / name).exists():
            _add_file(add, name, data / name)


def _lake_files(lake: Lake, database: Path) -> dict[str, bool]:
    """List the files that belong to the copied database, and whether each has to be there. Files
    outside the lake's own folders may vanish at any time."""
    engine = sa.create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        known = {*connection.execute(sa.select(segment_intent.c.name)).scalars()}
        kept: set[str] = set()
        for table in file_tables().values():
            kept |= {*connection.execute(sa.select(table.c.name)).scalars()}
    engine.dispose()
    folders = tuple(f"{folder}/" for folder in file_tables())
    names: dict[str, bool] = {}
    for stored in lake.store.list():
        own = segment_name(stored.name)
        if own in kept or not stored.name.startswith(folders) or own in known:
            names[stored.name] = own in kept
    return names


def _add_file(add: _Write, name: str, path: Path) -> None:
    with path.open("rb") as file:
        add(name, os.fstat(file.fileno()).st_size, file)


class _Reader:
    def __init__(self, content: BinaryIO, size: int, progress: Progress) -> None:
        self._content, self._left, self._progress = content, size, progress
        self._sum = hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        wanted = self._left if count < 0 else min(count, self._left)
        piece = self._content.read(wanted)
        self._left -= len(piece)
        self._sum.update(piece)
        self._progress(len(piece))
        return piece

    def finish(self, name: str) -> str:
        if self._left:
            raise InvalidInput(what=name, why="it became shorter while it was copied")
        return self._sum.hexdigest()


@contextmanager
def _writer(path: Path, *, as_tar: bool) -> Iterator[_Write]:
    """Yield a function that writes a file. All is on disk when the block ends well."""
    if not as_tar:
        yield partial(_write_file, path)
        return
    with open_private(path, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:

            def write(name: str, size: int, content: BinaryIO) -> None:
                member = tarfile.TarInfo(name)
                member.size, member.mode = size, 0o600
                archive.addfile(member, content)

            yield write
        file.flush()
        os.fsync(file.fileno())


def _write_file(folder: Path, name: str, _size: int, content: BinaryIO) -> None:
    path = folder / name
    make_directory(path.parent)
    with open_private(path, "wb") as file:
        while piece := content.read(_PIECE_BYTES):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)


# Restoring


def restore(source: Path, data: Path, progress: Progress = lambda _count: None) -> Backup:
    """Restore a backup into an empty or new directory, once all files are compared and verified.
    Raises BackupDamaged, BackupNotEmbedded, InvalidInput."""
    data = data.absolute()
    _require_embedded(load_settings(data))
    staging = data / RESTORING
    if staging.exists() and not (data / _DATABASE).exists():
        for path in _content(data):  # of an earlier one, which was cut off
            _remove(path)
    if _content(data):
        raise InvalidInput(what=str(data), why="a lake is restored into an empty directory")
    make_directory(staging)
    try:
        backup = _unpack(source, staging, progress)
        _verify(staging, backup)
    except BaseException:
        with suppress(OSError):
            _remove(staging)
        raise
    for name in (_LOG, _STORE, *_SINGLE_FILES, _DATABASE):  # the last one makes it a lake
        if (staging / name).exists():
            (staging / name).rename(data / name)
            sync_directory(data)
    _remove(staging)
    return backup


def _unpack(source: Path, staging: Path, progress: Progress) -> Backup:
    sums: dict[str, BackedUpFile] = {}
    manifest = b""
    for name, size, content in _members(source):
        if name == MANIFEST:
            manifest = content.read(_MANIFEST_BYTES_MAX)
            continue
        reader = _Reader(content, size, progress)
        try:
            _write_file(staging, name, size, reader)  # type: ignore[arg-type]  # it reads
            sums[name] = BackedUpFile(size, reader.finish(name))
        except (InvalidInput, tarfile.TarError) as error:
            raise BackupDamaged(source=source, why=f"{name} is cut off") from error
    if not manifest:
        raise BackupDamaged(source=source, why=f"it has no {MANIFEST}, so it was never finished")
    try:
        backup = msgspec.json.decode(manifest, type=Backup)
    except ValueError as error:
        raise BackupDamaged(source=source, why=f"{MANIFEST} cannot be read: {error}") from None
    if backup.format != _FORMAT:
        why = f"it has the format {backup.format}, and this Penstock reads {_FORMAT}"
        raise BackupDamaged(source=source, why=why)
    for name in sorted({*backup.files, *sums}):
        if backup.files.get(name) != sums.get(name):
            state = "is missing" if name not in sums else "is not as it was backed up"
            raise BackupDamaged(source=source, why=f"{name} {state}")
    return backup


def _members(source: Path) -> Iterator[tuple[str, int, BinaryIO]]:
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    yield relative_name(path.relative_to(source).as_posix()), size, file
        return
    try:
        with tarfile.open(source, "r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    raise BackupDamaged(source=source, why=f"{member.name!r} is no file")
                yield relative_name(member.name), member.size, content  # type: ignore[misc]
    except FileNotFoundError:
        raise InvalidInput(what=str(source), why="there is no such backup") from None
    except (tarfile.TarError, OSError) as error:
        why = f"it is neither a directory nor a whole tar file: {error}"
        raise BackupDamaged(source=source, why=why) from error


def _verify(staging: Path, backup: Backup) -> None:
    settings = load_settings(staging)
    _require_embedded(settings)
    with Lake(settings) as lake:
        migrations.check(lake.database)
        for finding in verify(lake).findings:
            raise BackupDamaged(source="The backup", why=f"{finding.name}: {finding.problem}")
        with lake.database.read() as connection:
            present = log_partition.c.log_id == lake.log.id  # others were left behind
            rows = connection.execute(sa.select(log_partition).where(present)).all()
        for row in rows:
            bounds = lake.log.bounds(row.partition)
            if not bounds.first <= row.next_offset <= bounds.end:
                why = f"partition {row.partition} of the log does not reach what the lake holds"
                raise BackupDamaged(source="The backup", why=why)


# Files


def _require_embedded(settings: Settings) -> None:
    data = settings.data
    own = {
        "database_url": f"sqlite:///{data}/{_DATABASE}",
        "log_url": f"local:{data}/{_LOG}",
        "store_url": f"file://{data}/{_STORE}",
    }
    for name, address in own.items():
        if getattr(settings, name) != address:
            raise BackupNotEmbedded(setting=name, data=data)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _content(directory: Path) -> list[Path]:
    paths = directory.iterdir() if directory.exists() else ()
    return [path for path in paths if path.name not in _NOT_OURS]
