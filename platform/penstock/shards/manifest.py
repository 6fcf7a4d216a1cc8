"""What a shard is and where it came from. The digest of its manifest is the shard's name.

The same manifest has the same bytes: keys are sorted, there are no spaces, text is UTF-8. It is
written last, so a folder without one is nothing.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from penstock.backends.storage.object_store import ObjectStore
from penstock.core.errors import InvalidInput
from penstock.core.files import DIGEST_PREFIX, relative_name, sha256_digits, tenant_folder
from penstock.shards.errors import ShardDamaged, ShardGone, ShardMissing
from penstock.shards.schema import FORMAT

ID_PREFIX = DIGEST_PREFIX
#: Where shards lie in the store: each in a folder of its own, below that of its tenant.
FOLDER = "shards"
MANIFEST_NAME = "manifest.json"
#: In the place of the manifest of a shard whose files are gone.
GONE_NAME = "gone.json"
_FOLDER_HEX = 16
_ID = re.compile(rf"{ID_PREFIX}[0-9a-f]{{{_FOLDER_HEX},64}}")


class ShardFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    sha256: str
    bytes: int
    row_groups: list[int]

    def __post_init__(self) -> None:
        """Paths are made of both, where the shard lies and where it is copied to."""
        relative_name(self.name)
        sha256_digits(self.sha256)


class RoutesFile(ShardFile, frozen=True, kw_only=True):
    """The side file with the routed experts of a part."""


class PartFile(ShardFile, frozen=True, kw_only=True):
    """A file of rows. `first` and `last` are the groups at its ends."""

    rows: int
    tokens: int
    trainable: int
    groups: int
    first: str
    last: str
    #: Which row groups begin in the middle of a group, because it is larger than one.
    continued: list[int] = []
    routes: RoutesFile | None = None


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
    """`excluded` says how many sessions were left out for each reason."""

    status: dict[str, int] = {}
    excluded: dict[str, int] = {}
    pending: int = 0
    sessions: int = 0
    samples: int = 0
    tokens: int = 0
    trainable: int = 0
    #: Rows of the recipe's length that the samples fill when they are packed; 0 if it does not.
    packed_rows: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """File names are relative to the shard's folder."""

    name: str
    recipe: str = ""
    query: str = ""
    snapshot: SnapshotReference | None = None
    seed: int = 0
    rewards: list[RewardReference] = []
    policy: PolicyRange | None = None
    #: What the recipe's channel pointed at.
    counted_from: str | None = None
    #: The versions of the suites whose tasks were looked for.
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


def is_shard_id(text: str) -> bool:
    """Also of the beginning of one that is long enough to find its folder."""
    return _ID.fullmatch(text) is not None


def shard_folder(tenant: str, shard_id: str) -> str:
    """Raises InvalidInput for what is no id."""
    if not is_shard_id(shard_id):
        why = f"a shard is named {ID_PREFIX} and {_FOLDER_HEX} to 64 hexadecimal digits"
        raise InvalidInput(what=f"The shard id {shard_id!r}", why=why)
    digits = shard_id.removeprefix(ID_PREFIX)[:_FOLDER_HEX]
    return f"{FOLDER}/{tenant_folder(tenant)}/{digits}"


def staging_folder(tenant: str) -> str:
    """Where builds put what is to become a tenant's shards."""
    return f"{FOLDER}/{tenant_folder(tenant)}/staging"


@dataclass(frozen=True)
class StoredShard:
    """A shard where it lies: the folder of a store that holds its files."""

    store: Any
    folder: str
    manifest: Manifest

    @property
    def id(self) -> str:
        return self.manifest.id

    def path(self, file: ShardFile) -> str:
        return f"{self.folder}/{file.name}"


def stored_shard(store: ObjectStore, folder: str, shard_id: str) -> StoredShard:
    """Raises as `read_manifest`."""
    return StoredShard(store, folder, read_manifest(store, folder, shard_id))


def read_manifest(
    store: ObjectStore, folder: str, shard_id: str, *, or_kept: bool = False
) -> Manifest:
    """Read a manifest; with `or_kept` also that of a shard that was dropped. Raises ShardMissing,
    ShardGone; ShardDamaged when it is not the manifest with this id."""
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
        why = f"it has the format {manifest.format}, and this Penstock reads {FORMAT}"
        raise ShardDamaged(path=name, why=why)
    manifest.__dict__["id"] = _digest_of(content)
    return manifest


def write_manifest(store: ObjectStore, folder: str, manifest: Manifest) -> None:
    """The shard exists from here on. All its files must be there."""
    with store.create(f"{folder}/{MANIFEST_NAME}") as file:
        file.write(manifest.canonical())


# Shards whose files are gone


class GoneNote(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a shard's files: a reader of a store has no database to ask."""

    how: str
    at: str
    why: str
    #: The manifest as it was, where nothing in it had to be erased.
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
    """Read the text of the manifest, or that which the note keeps. Raises ShardDamaged."""
    content = _content(store, f"{folder}/{MANIFEST_NAME}")
    if content is not None:
        return content.decode(errors="replace")
    note = read_gone_note(store, folder)
    return None if note is None else note.manifest


def replace_files_by_note(store: ObjectStore, folder: str, note: GoneNote) -> int:
    """Delete all files of a shard but the note; how many. May be cut off and done again."""
    with store.create(f"{folder}/{GONE_NAME}") as file:
        file.write(msgspec.json.encode(note))
    names = {file.name for file in store.list(folder)} - {f"{folder}/{GONE_NAME}"}
    for name in sorted(names):  # the manifest comes before the parts: no reader begins any more
        store.delete(name)
    return len(names)
