"""Data keys: each tenant has its own, wrapped in the database and unwrapped in memory."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import sqlalchemy as sa

from penstock.database.engine import Database, now_us
from penstock.encryption.errors import DataKeyMissing, DataKeyUnfit
from penstock.encryption.key_service import KeyService, UnwrapFailed
from penstock.encryption.sealed_file import DataKey
from penstock.encryption.tables import data_key

#: Whose the files of no tenant are.
LAKE = "lake"


@dataclass
class DataKeys:
    """Safe to share between threads."""

    database: Database
    service: KeyService
    _keys: dict[str, DataKey] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def current(self, owner: str) -> DataKey:
        """The key that new files of an owner are sealed with; the first one is made. The database
        is asked each time, so that a key which another process retired is used no more. Raises
        what the key service raises, DataKeyUnfit."""
        query = (
            sa.select(data_key.c.id, data_key.c.wrapped)
            .where(data_key.c.owner == owner, data_key.c.retired_at.is_(None))
            .order_by(data_key.c.made_at.desc(), data_key.c.id)
            .limit(1)
        )
        with self.database.read() as connection:
            row = connection.execute(query).one_or_none()
        return self.rotate(owner) if row is None else self._unwrapped(row.id, row.wrapped, owner)

    def of_file(self, name: str, key_id: str) -> DataKey:
        """The key that a file was sealed with. Raises DataKeyMissing, and as `current`."""
        with self._lock:
            if (key := self._keys.get(key_id)) is not None:
                return key
        query = sa.select(data_key.c.wrapped, data_key.c.owner).where(data_key.c.id == key_id)
        with self.database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise DataKeyMissing(name=name, id=key_id)
        return self._unwrapped(key_id, row.wrapped, row.owner)

    def rotate(self, owner: str) -> DataKey:
        """New files get a new key; those that are there keep theirs."""
        key = DataKey.new()
        row = {"id": key.id, "owner": owner, "wrapped": self.service.wrap(key.key, owner)}
        earlier = (data_key.c.owner == owner, data_key.c.retired_at.is_(None))
        with self.database.write() as connection:
            connection.execute(sa.update(data_key).where(*earlier).values(retired_at=now_us()))
            connection.execute(sa.insert(data_key).values(**row, made_at=now_us()))
        with self._lock:
            self._keys[key.id] = key
        return key

    def rewrap(self) -> int:
        """Wrap every data key with the present master key; how many they are. No file changes."""
        with self.database.read() as connection:
            rows = connection.execute(sa.select(data_key)).all()
        for row in rows:
            key = self._unwrapped(row.id, row.wrapped, row.owner)
            wrapped = self.service.wrap(key.key, row.owner)
            with self.database.write() as connection:
                mine = data_key.c.id == row.id
                connection.execute(sa.update(data_key).where(mine).values(wrapped=wrapped))
        return len(rows)

    def forget(self, key_ids: Iterable[str]) -> None:
        """Keys that were deleted."""
        with self._lock:
            for key_id in key_ids:
                self._keys.pop(key_id, None)

    def _unwrapped(self, key_id: str, wrapped: str, owner: str) -> DataKey:
        with self._lock:
            if (known := self._keys.get(key_id)) is not None:
                return known
        try:
            key = DataKey(key_id, self.service.unwrap(wrapped, owner))
        except UnwrapFailed as error:
            raise DataKeyUnfit(id=key_id, tenant=owner, why=str(error)) from error
        with self._lock:
            self._keys[key_id] = key
        return key


def has_data_keys(database: Database) -> bool:
    with database.read() as connection:
        return connection.execute(sa.select(data_key.c.id).limit(1)).first() is not None
