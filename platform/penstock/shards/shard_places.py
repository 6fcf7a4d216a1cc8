"""Where a reader finds shards: in a data directory, in a store, or at a service."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.database.errors import DatabaseUnreachable
from penstock.lake.errors import LakeMissing
from penstock.settings import Settings, load_settings
from penstock.shards.manifest import Manifest, is_shard_id, read_manifest
from penstock.shards.settings import WARN, ShardSettings
from penstock.storage import open_store


@dataclass(frozen=True)
class ShardPlace:
    #: The part of an ObjectStore that reads.
    store: Any
    settings: Settings
    #: The manifest of a shard, by what names one there.
    manifest: Callable[[str], Manifest]
    #: Whether files can be read at any place of them.
    random_access: bool = True


def shard_place(data: str | Path, *, tenant: str, key: str | None) -> ShardPlace:
    """Raises InvalidInput, SettingInvalid."""
    if isinstance(data, str) and data.startswith(("http://", "https://")):
        return _service_place(data, key)
    by_url = isinstance(data, str) and "://" in data
    settings = load_settings(flags={"store_url": data}) if by_url else load_settings(data)
    store = open_store(settings)

    def manifest(text: str) -> Manifest:
        id_, withdrawn = (text, 0) if by_url else _registered(settings, tenant, text)
        known = read_manifest(store, id_)
        if withdrawn:
            warnings.warn(
                f"{id_} holds {withdrawn} sessions of which consent was withdrawn: build it anew"
                " before training on it",
                stacklevel=3,
            )
        return known

    return ShardPlace(store, settings, manifest)


def _registered(settings: Settings, tenant: str, text: str) -> tuple[str, int]:
    """Its id, and of how many of its sessions consent was withdrawn. Whoever names a shard by its
    id may do without the database. Raises ShardUnknown, ShardWithdrawn, LakeMissing."""
    from penstock.database.engine import Database
    from penstock.lake.lake import check_lake
    from penstock.shards.registered_shards import find_shard
    from penstock.shards.withdrawn_sessions import check_withdrawn

    try:
        check_lake(settings)
    except LakeMissing:
        if is_shard_id(text):
            return text, 0
        raise
    database = Database.of(settings)
    try:
        id_ = text if is_shard_id(text) else find_shard(database, tenant, text).id
        withdrawn = check_withdrawn(database, settings, id_)
    except DatabaseUnreachable:
        # A warning is not worth the end of a training run.
        if is_shard_id(text) and settings.room(ShardSettings).withdrawn_shards == WARN:
            return text, 0
        raise
    finally:
        database.close()
    return id_, withdrawn


def _service_place(url: str, key: str | None) -> ShardPlace:
    from penstock.shards.service_store import ServiceStore, service_desk

    settings = replace(load_settings(), data=_user_cache())
    store = ServiceStore(lambda: service_desk(url, key))
    return ShardPlace(store, settings, store.manifest, random_access=False)


def _user_cache() -> Path:
    """Where programs keep what they can fetch again."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".cache") / "penstock"
