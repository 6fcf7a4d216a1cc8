"""New data keys in place of old ones, and the end of those that no file needs."""

import time
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.audit.chain import append
from penstock.audit.entry import NO_TENANT, OPERATOR, Deed
from penstock.encryption.data_keys import LAKE
from penstock.encryption.errors import NotEncrypted, TenantWithoutDataKey
from penstock.encryption.sealed_store import SealedStore, owner_of
from penstock.encryption.tables import data_key
from penstock.lake.lake import Lake
from penstock.lake.tables import segment_intent
from penstock.safe_names import tenant_folder

#: How long a file that is under way is waited for.
WRITERS_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class KeyRotation:
    #: Of the key that new files are sealed with.
    key: str
    #: Keys of before that no file needed any more.
    deleted: int
    #: Keys of before that files still need.
    kept: int


@dataclass(frozen=True)
class DataKeyState:
    id: str
    #: The folder of a tenant, or `lake`.
    owner: str
    made_at: int
    retired_at: int | None


def sealed_store(lake: Lake) -> SealedStore:
    """Raises NotEncrypted."""
    if not isinstance(lake.store, SealedStore):
        raise NotEncrypted(where=lake.settings.data)
    return lake.store


def list_data_keys(lake: Lake) -> list[DataKeyState]:
    """By owner; the newest of each comes last."""
    columns = [data_key.c[name] for name in DataKeyState.__dataclass_fields__]
    query = sa.select(*columns).order_by(data_key.c.owner, data_key.c.made_at, data_key.c.id)
    with lake.database.read() as connection:
        return [DataKeyState(*row) for row in connection.execute(query)]


def rotate_data_key(lake: Lake, tenant: str, by: str = OPERATOR) -> KeyRotation:
    """Seal new files of a tenant with a new key, and delete keys that no file of its needs.
    Raises NotEncrypted, TenantWithoutDataKey, and what the key service raises."""
    keys = sealed_store(lake).keys
    owner = tenant_folder(tenant)
    if not _is_owner(lake, owner):
        raise TenantWithoutDataKey(tenant=tenant)
    key = keys.rotate(owner)
    deleted = delete_unneeded_keys(lake, owner)
    with lake.database.write() as connection:
        facts = {"data keys deleted": deleted}
        append(
            connection, Deed(tenant=tenant, actor=by, action="rotate", subject=key.id, facts=facts)
        )
    return KeyRotation(key.id, deleted, len(retired_keys(lake, owner)))


def rewrap_data_keys(lake: Lake, by: str = OPERATOR) -> int:
    """Wrap all data keys with the present master key; how many. Raises as `rotate_data_key`."""
    count = sealed_store(lake).keys.rewrap()
    with lake.database.write() as connection:
        facts = {"data keys wrapped": count}
        append(connection, Deed(tenant=NO_TENANT, actor=by, action="rotate", facts=facts))
    return count


def replace_data_key(lake: Lake, tenant: str) -> None:
    """The same without more ado, where the tenant has a key."""
    owner = tenant_folder(tenant)
    if isinstance(lake.store, SealedStore) and _is_owner(lake, owner):
        lake.store.keys.rotate(owner)


def delete_unneeded_keys(lake: Lake, owner: str, seconds_max: float = WRITERS_SECONDS_MAX) -> int:
    """Delete the retired keys of an owner that no file is sealed with: what is left of such files
    anywhere opens no more. How many; none while somebody writes for longer than `seconds_max`."""
    store = sealed_store(lake)
    unneeded = retired_keys(lake, owner)
    if owner == LAKE or not unneeded or not _wait_for_writers(lake, owner, seconds_max):
        return 0
    for stored in store.list():
        if not unneeded:
            break
        if owner_of(stored.name) == owner:
            unneeded.discard(_key_of(store, stored.name))
    with lake.database.write() as connection:
        for key in sorted(unneeded):
            connection.execute(sa.delete(data_key).where(data_key.c.id == key))
    store.keys.forget(unneeded)
    return len(unneeded)


def _wait_for_writers(lake: Lake, owner: str, seconds_max: float) -> bool:
    """Wait until the files that are being written now are whole or given up: they may have a key
    that was retired meanwhile. Whoever writes a file has announced it before, and whoever announces
    one from now on gets the new key."""
    names = sa.select(segment_intent.c.name).where(
        segment_intent.c.claimed_at.is_(None), segment_intent.c.name.contains(f"/{owner}/")
    )
    deadline_s = time.monotonic() + seconds_max
    writing: set[str] | None = None
    while True:
        with lake.database.read() as connection:
            present = set(connection.scalars(names))
        writing = present if writing is None else writing & present
        if not writing or time.monotonic() >= deadline_s:
            return not writing
        time.sleep(_LOOK_SECONDS)


def _key_of(store: SealedStore, name: str) -> str:
    try:
        return store.key_of(name) or ""
    except FileNotFoundError:  # it was collected, or is a remain of an unfinished write
        return ""


def _is_owner(lake: Lake, owner: str) -> bool:
    mine = sa.select(data_key.c.id).where(data_key.c.owner == owner).limit(1)
    with lake.database.read() as connection:
        return connection.execute(mine).first() is not None


def retired_keys(lake: Lake, owner: str) -> set[str]:
    """Of before, and still there: files may need them."""
    query = sa.select(data_key.c.id).where(
        data_key.c.owner == owner, data_key.c.retired_at.is_not(None)
    )
    with lake.database.read() as connection:
        return set(connection.scalars(query))
