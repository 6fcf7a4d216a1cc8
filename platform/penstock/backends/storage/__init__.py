"""The object store: immutable files in a directory or S3."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.backends.storage.object_store import FileStore, ObjectStore
from penstock.core.errors import SettingInvalid
from penstock.core.settings import Settings


def open_store(settings: Settings) -> ObjectStore:
    """Open the store of `store_url`. Raises SettingInvalid."""
    address = urlsplit(settings.store_url)
    if address.scheme == "file" and address.path and not address.netloc:
        return FileStore(Path(unquote(address.path)))
    if address.scheme == "s3":
        from penstock.backends.storage.s3 import S3Address, S3Store

        return S3Store(S3Address.of(address), Path(settings.data) / "tmp")
    raise SettingInvalid(
        name="store_url",
        origin="the settings",
        why=f"{settings.store_url!r} is neither file://DIR nor s3://BUCKET/PREFIX",
    )
