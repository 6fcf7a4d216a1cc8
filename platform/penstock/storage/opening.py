"""From an address to the object store behind it."""

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.errors import InvalidInput, SettingInvalid
from penstock.http.address import HttpAddress
from penstock.settings import Settings
from penstock.storage import ObjectStore
from penstock.storage.files import FileStore
from penstock.storage.s3 import Patience, Place, S3Store
from penstock.storage.settings import StorageSettings

#: A store that takes longer to accept a connection is away.
_CONNECT_SECONDS_MAX = 5.0

_S3_OPTIONS = ("endpoint", "region")


def open_store(settings: Settings) -> ObjectStore:
    address = urlsplit(settings.store_url)
    if address.scheme == "file" and address.path and not address.netloc:
        return FileStore(Path(unquote(address.path)))
    if address.scheme == "s3":
        patience = Patience(
            connect_seconds_max=_CONNECT_SECONDS_MAX,
            silence_seconds_max=settings.room(StorageSettings).store_silence_seconds_max,
            attempts_max=settings.room(StorageSettings).store_attempts_max,
        )
        return S3Store(_place(address), patience, Path(settings.data) / "tmp")
    raise _unusable(f"{settings.store_url!r} is neither file://DIR nor s3://BUCKET/PREFIX")


def _place(address: SplitResult) -> Place:
    if "@" in address.netloc:
        raise _unusable("keys do not belong into an address; set AWS_ACCESS_KEY_ID and the like")
    if not address.netloc:
        raise _unusable("s3:// is followed by the name of a bucket")
    options = parse_qsl(address.query, keep_blank_values=True)
    if unknown := [name for name, _ in options if name not in _S3_OPTIONS]:
        raise _unusable(f"{unknown[0]} is not one of its options, {' and '.join(_S3_OPTIONS)}")
    named = {name: value for name, value in options if value}
    endpoint = named.get("endpoint")
    if endpoint and not _is_server(endpoint):
        raise _unusable(f"the endpoint {endpoint!r} is not http(s)://HOST:PORT")
    return Place(
        bucket=address.netloc,
        prefix=unquote(address.path).strip("/"),
        endpoint=endpoint.rstrip("/") if endpoint else None,
        region=named.get("region"),
    )


def _is_server(endpoint: str) -> bool:
    try:
        address = HttpAddress.of(endpoint, "The endpoint")
    except InvalidInput:
        return False
    return not (address.path.strip("/") or address.query or address.login)


def _unusable(why: str) -> SettingInvalid:
    return SettingInvalid(name="store_url", origin="the settings", why=why)
