"""From an address to the object store behind it."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.errors import SettingInvalid
from penstock.settings import Settings
from penstock.storage import ObjectStore
from penstock.storage.files import FileStore


def open_store(settings: Settings) -> ObjectStore:
    address = urlsplit(settings.store_url)
    if address.scheme == "file" and address.path and not address.netloc:
        return FileStore(Path(unquote(address.path)))
    raise SettingInvalid(
        name="store_url", origin="the settings", why=f"{settings.store_url!r} is not file://DIR"
    )
