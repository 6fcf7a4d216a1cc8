"""The object store: immutable files by name. Segments live here."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple, Protocol

import pyarrow as pa


class StoredObject(NamedTuple):
    name: str
    size: int


class ObjectStore(Protocol):
    """Names are relative, with `/` between parts. An object is whole or absent.

    A store that is elsewhere raises StoreUnreachable or StoreRefused, and FileNotFoundError for
    an absent object alone.
    """

    @property
    def local(self) -> bool:
        """Whether an address is a path that every program of this machine can open."""
        ...

    def check(self) -> None:
        """Ask whether it can be used. Raises StoreUnreachable, StoreRefused."""
        ...

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file to write; it appears under `name`, durably, when the block ends well."""
        ...

    def open(self, name: str) -> pa.NativeFile:
        """Random access for reading. Raises FileNotFoundError."""
        ...

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """What is there, remains of unfinished writes included."""
        ...

    def delete(self, name: str) -> None:
        """Remove the object, and remains of an unfinished write of it; absent is fine."""
        ...

    def address(self, name: str) -> str:
        """Where a query engine finds it."""
        ...
