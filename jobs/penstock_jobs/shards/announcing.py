"""Files that are announced as they are created: what is never finished can be cleared away."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

import pyarrow as pa

from penstock.database.engine import Database
from penstock.lake.commit import NO_PARTITION, announce
from penstock.storage import ObjectStore, StoredObject


class AnnouncingStore:
    """A store whose files the metadata database hears of before they are written."""

    def __init__(self, store: ObjectStore, database: Database, owner: str) -> None:
        self._store = store
        self._database = database
        self._owner = owner

    @property
    def local(self) -> bool:
        return self._store.local

    def check(self) -> None:
        self._store.check()

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        announce(self._database, name, NO_PARTITION, self._owner)
        return self._store.create(name)

    def open(self, name: str) -> pa.NativeFile:
        return self._store.open(name)

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        return self._store.list(prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def address(self, name: str) -> str:
        return self._store.address(name)
