"""Where a reader finds shards: in a data directory, in a store, or at a service."""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.database.errors import DatabaseUnreachable
from penstock.lake.errors import LakeMissing
from penstock.settings import Settings, load_settings
from penstock.shards.errors import ShardMissing
from penstock.shards.manifest import (
    StoredShard,
    is_shard_id,
    shard_folder,
    shared_folder,
    stored_shard,
)
from penstock.shards.settings import WARN, ShardSettings
from penstock.storage import ObjectStore, open_store

if TYPE_CHECKING:
    from penstock.database.engine import Database
    from penstock.shards.registered_shards import RegisteredShard


@dataclass(frozen=True)
class ShardPlace:
    #: The part of an ObjectStore that reads.
    store: Any
    settings: Settings
    #: A shard, by what names one there.
    stored: Callable[[str], StoredShard]
    #: Whether files can be read at any place of them.
    random_access: bool = True


def shard_place(data: str | Path, *, tenant: str, key: str | None) -> ShardPlace:
    """Raises InvalidInput, SettingInvalid."""
    if isinstance(data, str) and data.startswith(("http://", "https://")):
        return _service_place(data, key)
    if isinstance(data, str) and "://" in data:
        settings = load_settings(flags={"store_url": data})
        store = open_store(settings)
        return ShardPlace(store, settings, lambda text: _of_store(store, tenant, text))
    return _directory_place(load_settings(data), tenant)


def _of_store(store: ObjectStore, tenant: str, shard_id: str) -> StoredShard:
    """Where nothing but the store says what there is. Raises InvalidInput, ShardMissing,
    ShardGone, ShardDamaged."""
    own = shard_folder(tenant, shard_id)
    try:
        return stored_shard(store, own, shard_id)
    except ShardMissing:
        with suppress(ShardMissing):
            return stored_shard(store, shared_folder(shard_id), shard_id)
        raise


def _directory_place(settings: Settings, tenant: str) -> ShardPlace:
    """Raises SettingInvalid. Whoever names a shard by its id may do without the database."""
    from penstock.database.engine import Database
    from penstock.lake.lake import check_lake
    from penstock.shards.withdrawn_sessions import check_withdrawn

    database = Database.of(settings)
    store = open_store(settings)

    def stored(text: str) -> StoredShard:
        """Raises ShardUnknown, ShardMissing, ShardDamaged, ShardWithdrawn, LakeMissing."""
        try:
            check_lake(settings)
            known = _registered(database, tenant, text)
            if known is None:
                return _of_store(store, tenant, text)
            withdrawn = check_withdrawn(database, settings, known.tenant, known.id)
            found = stored_shard(store, known.folder, known.id)
        except (LakeMissing, DatabaseUnreachable) as error:
            # A warning is not worth the end of a training run, a refusal is.
            refuses = settings.room(ShardSettings).withdrawn_shards != WARN
            if not is_shard_id(text) or (isinstance(error, DatabaseUnreachable) and refuses):
                raise
            return _of_store(store, tenant, text)
        finally:
            database.close()
        if withdrawn:
            warnings.warn(
                f"{known.id} holds {withdrawn} sessions of which consent was withdrawn: build it"
                " anew before training on it",
                stacklevel=4,
            )
        return found

    return ShardPlace(store, settings, stored)


def _registered(database: "Database", tenant: str, text: str) -> "RegisteredShard | None":
    """Whoever has the directory may name any tenant's shard by its id; None where a store has one
    that the lake does not know. Raises ShardUnknown."""
    from penstock.shards.registered_shards import find_by_id, find_shard

    if is_shard_id(text):
        return find_by_id(database, tenant, text)
    return find_shard(database, tenant, text)


def _service_place(url: str, key: str | None) -> ShardPlace:
    from penstock.shards.service_store import ServiceStore, service_desk

    settings = replace(load_settings(), data=_user_cache())
    store = ServiceStore(lambda: service_desk(url, key))
    return ShardPlace(store, settings, store.stored, random_access=False)


def _user_cache() -> Path:
    """Where programs keep what they can fetch again."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".cache") / "penstock"
