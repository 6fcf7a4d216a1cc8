"""The manifest of a shard: its content and origin. Its digest is the name of the shard.

Equal manifests have equal bytes: sorted keys, no spaces, UTF-8. It is written last, so a folder
without one is nothing.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.backends.storage.object_store import ObjectStore
from penstock.core.files import relative_name, sha256_digits
from penstock.core.settings import MIB
from penstock.lake.segments import DigestingFile
from penstock.shards.schema import FORMAT, ROUTE_ROWS, SHARD_ROWS
from penstock.shards.shard import ID_PREFIX, ShardDamaged, ShardGone, ShardMissing

MANIFEST_NAME = "manifest.json"
#: Replaces the manifest of a shard whose files are gone.
GONE_NAME = "gone.json"


class ShardFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    sha256: str
    bytes: int
    row_groups: list[int]

    def __post_init__(self) -> None:
        """Check the name and the digest: paths are made of both."""
        relative_name(self.name)
        sha256_digits(self.sha256)


class PartFile(ShardFile, frozen=True, kw_only=True):
    """A file of rows. `first` and `last` are the groups at its ends."""

    rows: int
    tokens: int
    trainable: int
    groups: int
    first: str
    last: str
    #: Row groups that continue a group, because it is larger than one.
    continued: list[int] = []
    #: The side file with its routed experts.
    routes: ShardFile | None = None


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SnapshotReference(_Part, frozen=True):
    name: str
    snap: int


class RewardReference(_Part, frozen=True):
    definition: str
    version: str


class PolicyRange(_Part, frozen=True):
    min: int
    max: int


class Tokenizer(_Part, frozen=True):
    sha256: str
    id: str


class Counts(_Part, frozen=True):
    """Counts of a shard. `excluded` counts left out sessions and files by reason."""

    status: dict[str, int] = {}
    excluded: dict[str, int] = {}
    pending: int = 0
    sessions: int = 0
    samples: int = 0
    tokens: int = 0
    trainable: int = 0
    #: Rows of the recipe's length that the packed samples fill; 0 without packing.
    packed_rows: int = 0
    #: Rows by the source of their hint, hints without a row by reason, and calls with `no_hint`.
    hints: dict[str, int] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The manifest. File names are relative to the shard's folder."""

    name: str
    recipe: str = ""
    query: str = ""
    snapshot: SnapshotReference | None = None
    seed: int = 0
    rewards: list[RewardReference] = []
    policy: PolicyRange | None = None
    #: The checkpoint of the recipe's channel.
    counted_from: str | None = None
    #: The model that wrote hints, and the digest of its prompt.
    hint_writer: str | None = None
    #: Versions of suites whose tasks were excluded.
    suites: dict[str, str] = {}
    tokenizer: Tokenizer | None = None
    template_sha256: str | None = None
    files: list[PartFile]
    counts: Counts
    code_version: str = ""
    format: int = FORMAT

    def canonical(self) -> bytes:
        return msgspec.json.encode(self, order="sorted")

    @cached_property
    def id(self) -> str:
        return _digest_of(self.canonical())

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.files)


def _digest_of(content: bytes) -> str:
    return ID_PREFIX + hashlib.sha256(content).hexdigest()


class StoredShard(msgspec.Struct, frozen=True):
    """A shard in a store: the folder of its files."""

    store: Any
    folder: str
    manifest: Manifest

    @property
    def id(self) -> str:
        return self.manifest.id

    def path(self, file: ShardFile) -> str:
        return f"{self.folder}/{file.name}"


def stored_shard(store: ObjectStore, folder: str, shard_id: str) -> StoredShard:
    """The shard with this id. Raises the errors of `read_manifest`."""
    return StoredShard(store, folder, read_manifest(store, folder, shard_id))


def read_manifest(
    store: ObjectStore, folder: str, shard_id: str, *, or_kept: bool = False
) -> Manifest:
    """Read a manifest; with `or_kept` also of a dropped shard. Raises ShardMissing, ShardGone, and
    ShardDamaged if the digest differs."""
    name = f"{folder}/{MANIFEST_NAME}"
    content = _content(store, name)
    if content is None:
        note = read_gone_note(store, folder)
        if note is None:
            raise ShardMissing(shard=shard_id, where=store.address(name))
        if note.manifest is None or not or_kept:
            why = f": {note.why}" if note.why else ""
            raise ShardGone(shard=shard_id, how=note.how, when=note.at, why=why)
        content = note.manifest.encode()
    if not (digest := _digest_of(content)).startswith(shard_id):
        raise ShardDamaged(path=name, why=f"it is the manifest of {digest}")
    return decoded_manifest(content, name)


def _content(store: ObjectStore, name: str) -> bytes | None:
    try:
        with store.open(name) as source:
            return bytes(source.read())
    except FileNotFoundError:
        return None


def decoded_manifest(content: bytes, name: str) -> Manifest:
    """Decode the content of the file `name`. Raises ShardDamaged."""
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ShardDamaged(path=name, why=f"this Penstock cannot read it: {error}") from error
    if manifest.format != FORMAT:
        why = f"it has the format {manifest.format}; this Penstock reads {FORMAT}"
        raise ShardDamaged(path=name, why=why)
    manifest.__dict__["id"] = _digest_of(content)
    return manifest


def write_manifest(store: ObjectStore, folder: str, manifest: Manifest) -> None:
    """Write the manifest; the shard exists from here on. All its files must be there."""
    with store.create(f"{folder}/{MANIFEST_NAME}") as file:
        file.write(manifest.canonical())


# Shards whose files are gone


class GoneNote(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of a shard's files, for readers of a store without a database."""

    how: str
    at: str
    why: str
    #: The manifest, unless parts of it had to be erased.
    manifest: str | None = None


def read_gone_note(store: ObjectStore, folder: str) -> GoneNote | None:
    """Raises ShardDamaged."""
    name = f"{folder}/{GONE_NAME}"
    content = _content(store, name)
    try:
        return None if content is None else msgspec.json.decode(content, type=GoneNote)
    except msgspec.MsgspecError as error:
        raise ShardDamaged(path=name, why=str(error)) from error


def kept_manifest(store: ObjectStore, folder: str) -> str | None:
    """Read the manifest, or the one that the note keeps. Raises ShardDamaged."""
    content = _content(store, f"{folder}/{MANIFEST_NAME}")
    if content is not None:
        return content.decode(errors="replace")
    note = read_gone_note(store, folder)
    return None if note is None else note.manifest


def replace_files_by_note(store: ObjectStore, folder: str, note: GoneNote) -> int:
    """Delete all files of a shard but the note; returns their number. Repeatable after an
    interruption."""
    with store.create(f"{folder}/{GONE_NAME}") as file:
        file.write(msgspec.json.encode(note))
    names = {file.name for file in store.list(folder)} - {f"{folder}/{GONE_NAME}"}
    for name in sorted(names):  # the manifest first, so no reader begins any more
        store.delete(name)
    return len(names)


_COPY_BYTES = 8 * MIB


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def routes_name(part: str) -> str:
    return part.removesuffix(".parquet") + ".routes.parquet"


@contextmanager
def reporting_damage(path: str) -> Iterator[None]:
    """Raise ShardDamaged for any damage of this file.

    Arrow raises OSError also for a wrong checksum; errors of the system have a number."""
    try:
        yield
    except FileNotFoundError as error:
        raise ShardDamaged(path=path, why="it is missing") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ShardDamaged(path=path, why=str(error).strip()) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise ShardDamaged(path=path, why=str(error).strip()) from error


@contextmanager
def open_part(store: ObjectStore, path: str, part: ShardFile) -> Iterator[pq.ParquetFile]:
    """Open a file whose pages are verified as they are read. Raises ShardDamaged, also within the
    block, and errors of the store."""
    with reporting_damage(path), store.open(path) as source:
        if source.size() != part.bytes:
            why = f"it has {source.size()} bytes; the manifest says {part.bytes}"
            raise ShardDamaged(path=path, why=why)
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            # The footer has no checksum of its own: a flipped bit may rename a column.
            schema = SHARD_ROWS if isinstance(part, PartFile) else ROUTE_ROWS
            if not file.schema_arrow.equals(schema):
                raise ShardDamaged(path=path, why="its columns are not those of a shard")
            yield file


def read_part(
    store: ObjectStore, path: str, part: ShardFile, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Read the rows of a file in order, one row group at a time. Raises ShardDamaged."""
    with open_part(store, path, part) as file:
        counts = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
        if counts != part.row_groups:
            why = f"its row groups have {counts} rows; the manifest says {part.row_groups}"
            raise ShardDamaged(path=path, why=why)
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=columns)
            yield rows if columns is None else rows.select(columns)


def check_digest(store: ObjectStore, path: str, part: ShardFile) -> None:
    """Read the whole file. Raises ShardDamaged if its checksum differs from the manifest's."""
    with reporting_damage(path), store.open(path) as source:
        digest = hashlib.sha256()
        while piece := source.read_buffer(_COPY_BYTES):
            digest.update(piece)
    _compare(path, digest.hexdigest(), part)


class ReadableStore(Protocol):
    """The part of an ObjectStore that copying needs. Files are read once, in order."""

    def open(self, name: str) -> pa.NativeFile: ...


def copy_part(
    source: ReadableStore, path: str, target: ObjectStore, to: str, part: ShardFile
) -> None:
    """Copy a file; nothing with another checksum appears at `to`. Raises ShardDamaged."""
    with reporting_damage(path), source.open(path) as file, target.create(to) as copy:
        sink = DigestingFile(copy)
        while piece := file.read_buffer(_COPY_BYTES):
            sink.write(piece)
        _compare(path, sink.digest.hexdigest(), part)


def _compare(path: str, sha256: str, part: ShardFile) -> None:
    if sha256 != part.sha256:
        why = f"its checksum is {sha256}; the manifest says {part.sha256}"
        raise ShardDamaged(path=path, why=why)


def files_of(manifest: Manifest) -> Iterator[ShardFile]:
    for part in manifest.files:
        yield part
        if part.routes:
            yield part.routes


def read_rows(shard: StoredShard, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Read the rows of a shard in order, one row group at a time. Raises ShardDamaged."""
    for part in shard.manifest.files:
        yield from read_part(shard.store, shard.path(part), part, columns)


class RouteRows:
    """The rows of a side file. Its row groups differ from its part's."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._waiting: list[pa.Table] = []

    def take(self, count: int) -> pa.Table:
        """Return the next rows; fewer at the end."""
        while sum(rows.num_rows for rows in self._waiting) < count:
            if (rows := next(self._tables, None)) is None:
                break
            self._waiting.append(rows)
        if not self._waiting:
            return ROUTE_ROWS.empty_table()
        waiting = pa.concat_tables(self._waiting)
        self._waiting = [waiting[count:]]
        return waiting[:count]
