"""Where a reader finds shards: in a data directory, in a store, or at a service."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.settings import Settings, load_settings
from penstock.shards.manifest import Manifest, is_shard_id, read_manifest
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
        if not by_url and not is_shard_id(text):
            text = _registered_id(settings, tenant, text)
        return read_manifest(store, text)

    return ShardPlace(store, settings, manifest)


def _registered_id(settings: Settings, tenant: str, text: str) -> str:
    """Raises ShardUnknown, LakeMissing."""
    from penstock.database.engine import Database
    from penstock.lake.lake import check_lake
    from penstock.shards.registered_shards import find_shard

    check_lake(settings)
    database = Database.of(settings)
    try:
        return find_shard(database, tenant, text).id
    finally:
        database.close()


def _service_place(url: str, key: str | None) -> ShardPlace:
    from penstock.shards.service_store import ServiceStore, service_desk

    settings = replace(load_settings(), data=_user_cache())
    store = ServiceStore(lambda: service_desk(url, key))
    return ShardPlace(store, settings, store.manifest, random_access=False)


def _user_cache() -> Path:
    """Where programs keep what they can fetch again."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".cache") / "penstock"
