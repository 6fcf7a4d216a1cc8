"""The store of a lake whose files are sealed. What was written before stays readable."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from penstock.database.engine import Database
from penstock.encryption.data_keys import LAKE, DataKeys
from penstock.encryption.key_service import open_key_service
from penstock.encryption.sealed_file import HEADER_BYTES, SealedHeader, SealingFile, UnsealedFile
from penstock.safe_names import is_tenant_folder
from penstock.settings import Settings
from penstock.storage import ObjectStore, StoredObject, open_store


class SealedStore:
    """An ObjectStore over another one: each file is sealed with a key of the tenant in whose
    folder it lies. Sizes that it lists are of the sealed files."""

    #: Who has the address of a file has not what it holds.
    local = False

    def __init__(self, store: ObjectStore, keys: DataKeys) -> None:
        self.keys = keys
        self._store = store

    def check(self) -> None:
        """Raises what the key service raises too."""
        self._store.check()
        self.keys.current(LAKE)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        key = self.keys.current(owner_of(name))
        with self._store.create(name) as file:
            sealing = SealingFile(file, key, name)
            yield cast(BinaryIO, sealing)
            sealing.finish()

    def open(self, name: str) -> pa.NativeFile:
        source = self._store.open(name)
        header = SealedHeader.read(source.read_at(HEADER_BYTES, 0))
        if header is None:
            source.seek(0)
            return source
        key = self.keys.of_file(name, header.key_id)
        return pa.PythonFile(UnsealedFile(source, header, key, name), mode="r")

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        return self._store.list(prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def address(self, name: str) -> str:
        return self._store.address(name)

    def key_of(self, name: str) -> str | None:
        """The id of the key that a file is sealed with. Raises FileNotFoundError."""
        with self._store.open(name) as source:
            header = SealedHeader.read(source.read_at(HEADER_BYTES, 0))
        return header.key_id if header else None


def owner_of(name: str) -> str:
    """In whose folder a file lies."""
    return next((part for part in name.split("/")[:-1] if is_tenant_folder(part)), LAKE)


def open_lake_store(settings: Settings, database: Database) -> ObjectStore:
    """Raises SettingInvalid."""
    store = open_store(settings)
    service = open_key_service(settings)
    return store if service is None else SealedStore(store, DataKeys(database, service))
