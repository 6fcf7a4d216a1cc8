"""Places to read shards from: a data directory, a store, or a service."""

import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database
from penstock.backends.storage import open_store
from penstock.backends.storage.object_store import FileStore
from penstock.core.endpoint import Client
from penstock.core.files import SHARED_MODE, make_directory, relative_name
from penstock.core.settings import Settings, load_settings
from penstock.lake import LakeMissing
from penstock.lake.client import LocalClient, open_client
from penstock.lake.lake import check_lake
from penstock.shards.endpoints import PIECE_BYTES_MAX, READ_SHARD_FILE, ShardFileRequest
from penstock.shards.manifest import (
    MANIFEST_NAME,
    StoredShard,
    copy_part,
    decoded_manifest,
    files_of,
    stored_shard,
)
from penstock.shards.registered_shards import (
    check_withdrawn,
    find_by_id,
    find_shard,
    readable_shard,
)
from penstock.shards.shard import FOLDER, WARN, ShardSettings, is_shard_id, shard_folder

if TYPE_CHECKING:  # type checkers only, before Python 3.12
    from typing_extensions import Buffer


class ShardPlace(msgspec.Struct, frozen=True):
    store: Any
    settings: Settings
    #: Finds a shard by its name at this place.
    stored: Callable[[str], StoredShard]
    #: Whether files allow random access.
    random_access: bool = True


def shard_place(data: str | Path, *, tenant: str, key: str | None) -> ShardPlace:
    """Raises InvalidInput, SettingInvalid."""
    if isinstance(data, str) and data.startswith(("http://", "https://")):
        settings = replace(load_settings(), data=_user_cache())
        service = ServiceStore(lambda: open_client(None, data, key=key))
        return ShardPlace(service, settings, service.stored, random_access=False)
    if not isinstance(data, str) or "://" not in data:
        return _directory_place(load_settings(data), tenant)
    settings = load_settings(flags={"store_url": data})
    store = open_store(settings)
    return ShardPlace(
        store, settings, lambda text: stored_shard(store, shard_folder(tenant, text), text)
    )


def _directory_place(settings: Settings, tenant: str) -> ShardPlace:
    """A data directory; without its database only ids are found. Raises SettingInvalid."""
    database = Database.of(settings)
    store = open_store(settings)

    def stored(text: str) -> StoredShard:
        """Raises ShardUnknown, ShardMissing, ShardDamaged, ShardWithdrawn, LakeMissing."""
        try:
            check_lake(settings)
            # Whoever has the directory may read any tenant's shard by its id, even one that the
            # lake does not know.
            find = find_by_id if is_shard_id(text) else find_shard
            known = find(database, tenant, text)
            if known is None:
                return stored_shard(store, shard_folder(tenant, text), text)
            withdrawn = check_withdrawn(database, settings, known.tenant, known.id)
            found = stored_shard(store, known.folder, known.id)
        except (LakeMissing, DatabaseUnreachable) as error:
            # Only a refusal ends a training run, never a failed warning.
            refuses = settings.room(ShardSettings).withdrawn_shards != WARN
            if not is_shard_id(text) or (isinstance(error, DatabaseUnreachable) and refuses):
                raise
            return stored_shard(store, shard_folder(tenant, text), text)
        finally:
            database.close()
        if withdrawn:
            warnings.warn(
                f"{known.id} holds {withdrawn} sessions without consent: rebuild it"
                " before training on it",
                stacklevel=4,
            )
        return found

    return ShardPlace(store, settings, stored)


def _user_cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".cache") / "penstock"


# A service


class _FilePieces(io.RawIOBase):
    """A file of a shard, read from beginning to end."""

    def __init__(self, client: Client, shard: str, name: str) -> None:
        self._client, self._shard, self._name = client, shard, name
        self.at_end = ExitStack()
        self._start = 0
        self._piece = self._next_piece()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int:
        if not self._piece:
            self._piece = self._next_piece()
        room = memoryview(buffer).cast("B")
        count = min(len(room), len(self._piece))
        room[:count], self._piece = self._piece[:count], self._piece[count:]
        return count

    def close(self) -> None:
        self.at_end.close()
        super().close()

    def _next_piece(self) -> memoryview:
        question = ShardFileRequest(shard=self._shard, name=self._name, start=self._start)
        piece = self._client.call(READ_SHARD_FILE, question)
        self._start += len(piece)
        return memoryview(piece)


class ServiceStore(msgspec.Struct, frozen=True):
    """The part of an ObjectStore that reads shards over HTTP, each file from beginning to end. The
    folder of a shard is its id. A file's client is not thread-safe."""

    client: Callable[[], AbstractContextManager[Client]]
    local = False

    def open(self, name: str) -> pa.NativeFile:
        """Raises ShardUnknown, ShardFileUnknown."""
        shard, file = relative_name(name).split("/", 1)
        return pa.PythonFile(self._file(shard, file), mode="r")

    def stored(self, shard: str) -> StoredShard:
        """Find a shard by its id, the beginning of it, or its name. Raises ShardUnknown,
        ShardDamaged."""
        with self._file(shard, MANIFEST_NAME) as file:
            manifest = decoded_manifest(file.read(), MANIFEST_NAME)
        return StoredShard(self, manifest.id, manifest)

    def address(self, name: str) -> str:
        return name

    def _file(self, shard: str, name: str) -> io.BufferedReader:
        with ExitStack() as closing:
            client = closing.enter_context(self.client())
            pieces = _FilePieces(client, shard, name)
            pieces.at_end = closing.pop_all()
        return io.BufferedReader(pieces, PIECE_BYTES_MAX)


@contextmanager
def shard_at_hand(client: Client, shard: str, folder: Path) -> Iterator[StoredShard]:
    """Provide a shard for the block: the lake's, or copies below `folder`. Raises ShardUnknown,
    ShardMissing, ShardDamaged."""
    if isinstance(client, LocalClient):
        lake, tenant = client.lake, client.caller.tenant
        stored = readable_shard(lake, tenant, shard)
        lake.tally.count(tenant, client.caller.actor, "export", stored.id)
        yield stored
        return
    source = ServiceStore(lambda: nullcontext(client))
    remote = source.stored(shard)
    make_directory(folder, SHARED_MODE)
    with TemporaryDirectory(prefix=".penstock-", dir=folder) as directory:
        copies = StoredShard(FileStore(Path(directory)), FOLDER, remote.manifest)
        for part in files_of(remote.manifest):
            copy_part(source, remote.path(part), copies.store, copies.path(part), part)
        yield copies
