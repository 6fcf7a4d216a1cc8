"""Folders and store prefixes in which the service reads files for a tenant.

Its operator names them. Elsewhere nothing is read: even a digest would tell of others' files. An
opened file's real path is checked, so links changed meanwhile do no harm."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from penstock.core.errors import InvalidInput, SettingInvalid
from penstock.core.settings import RoomSettings, Settings, setting

if TYPE_CHECKING:
    from penstock.backends.storage.s3 import S3Address

_TENANT = "{tenant}"
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings(RoomSettings):
    """See docs/reference/settings.md."""

    artifact_roots: str = setting(
        "",
        "folders and s3:// prefixes, separated by commas, whose files are compared with the digest "
        "of a checkpoint registered over HTTP; {tenant} is the name of the key's tenant",
        "Set it, as /models/{tenant}, when tenants register files that the service can read.",
    )


@dataclass(frozen=True)
class ArtifactRoots:
    folders: tuple["ArtifactFolder", ...] = ()
    prefixes: tuple["S3Address", ...] = ()
    data: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read the roots from the settings, before a tenant is known. Raises SettingInvalid."""
        texts = settings.room(CheckpointSettings).artifact_roots.split(",")
        roots = [text.strip() for text in texts if text.strip()]
        prefixes = tuple(_prefix(text, settings) for text in roots if text.startswith("s3://"))
        data = os.path.realpath(settings.data)
        folders = (_folder(text, data) for text in roots if not text.startswith("s3://"))
        return cls(tuple(map(ArtifactFolder, folders)), prefixes, data)

    def of_tenant(self, tenant: str) -> "ArtifactRoots":
        unfit = "/" in tenant or tenant in (".", "..")  # no folder has such a name
        folders = (
            replace(each, tenant=tenant)
            for each in self.folders
            if not (unfit and _TENANT in each.path)
        )
        # A tenant's name may lead into the data directory.
        apart = tuple(each for each in folders if not _overlap(each.own_path, self.data))
        prefixes = []
        for each in self.prefixes:
            if not (unfit and _TENANT in each.path("")):
                bucket = each.bucket.replace(_TENANT, tenant)
                prefix = each.prefix.replace(_TENANT, tenant)
                prefixes.append(replace(each, bucket=bucket, prefix=prefix))
        return replace(self, folders=apart, prefixes=tuple(prefixes))

    def hold(self, uri: str) -> bool:
        """Whether an address is below one of the roots. Reads nothing."""
        try:
            if urlsplit(uri).scheme == "s3":
                return self._holds_object(uri)
        except ValueError:
            return False
        return self.folder_of(uri) is not None

    def folder_of(self, uri: str) -> "tuple[ArtifactFolder, str] | None":
        path = _path(uri)
        for folder in self.folders:
            if (inner := _below(path, folder.own_path)) is not None:
                return folder, inner
        return None

    def _holds_object(self, uri: str) -> bool:
        from penstock.backends.storage.s3 import S3Address

        try:
            address = S3Address.of(urlsplit(uri))
        except SettingInvalid:
            return False
        path = f"/{address.prefix}"
        return any(
            replace(address, prefix=root.prefix) == root
            and _below(path, f"/{root.prefix}".rstrip("/")) is not None
            for root in self.prefixes
        )


@dataclass(frozen=True)
class ArtifactFolder:
    path: str
    tenant: str = _TENANT

    @property
    def own_path(self) -> str:
        return self.path.replace(_TENANT, self.tenant)

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """Open a file or folder inside, and yield the descriptor. Raises InvalidInput, OSError."""
        before, named, _ = self.path.partition(_TENANT)
        trusted = before.rpartition("/")[0] or "/" if named else self.own_path
        # Links before the tenant's name are the operator's; later ones are not followed.
        root = Path(os.path.realpath(trusted)) / Path(self.own_path).relative_to(trusted)
        inner = Path(self.own_path, path.lstrip("/"))
        try:
            if not Path(os.path.realpath(inner)).is_relative_to(root):
                raise _absent(path)
            _check_plain(inner.stat(), path)  # a device is not even opened
            descriptor = os.open(inner, _OPEN)
        except OSError:
            raise _absent(path) from None
        try:
            if not Path(os.path.realpath(f"/proc/self/fd/{descriptor}")).is_relative_to(root):
                raise _absent(path)
            _check_plain(os.fstat(descriptor), path)
            yield descriptor
        finally:
            os.close(descriptor)

    def files(self, path: str) -> Iterator[tuple[str, int]]:
        """Yield the paths and sizes of all files below a folder inside. Raises OSError,
        InvalidInput."""
        folders = [""]
        while folders:
            folder = folders.pop()
            with self.open(f"{path}/{folder}") as descriptor, os.scandir(descriptor) as entries:
                listed = [(entry.name, entry.is_symlink()) for entry in entries]
            for name, linked in listed:
                inner = f"{folder}/{name}" if folder else name
                with self.open(f"{path}/{inner}") as descriptor:
                    status = os.fstat(descriptor)
                if not stat.S_ISDIR(status.st_mode):
                    yield inner, status.st_size
                elif linked:
                    why = "it is a link to a folder; name the folder itself"
                    raise InvalidInput(what=inner, why=why)
                else:
                    folders.append(inner)


def _check_plain(status: os.stat_result, shown: str) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise InvalidInput(what=shown, why="it is not a regular file")


def _absent(path: str) -> OSError:
    return FileNotFoundError(2, "it does not exist, or leads out of its root", path)


def _path(uri: str) -> str:
    address = urlsplit(uri)
    if address.scheme == "file":
        return unquote(address.path)
    return "" if address.scheme else uri


def _below(path: str, root: str) -> str | None:
    """The path relative to a root. None outside of it, and for paths with `..`."""
    parts, root_parts = path.rstrip("/").split("/"), root.split("/")
    unlike = "\0" in path or any(part in ("", ".", "..") for part in parts[1:])
    if unlike or parts[: len(root_parts)] != root_parts:
        return None
    return "/".join(parts[len(root_parts) :])


def _overlap(path: str, data: str) -> bool:
    """Whether one of the two is inside the other."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(data) or Path(data).is_relative_to(real)


def _invalid(root: str, why: str) -> SettingInvalid:
    why = f"{root}: {why}"
    return SettingInvalid(name="artifact_roots", origin="the settings", why=why)


def _folder(text: str, data: str) -> str:
    folder = _path(text).rstrip("/")
    if _below(folder, "") is None or not folder:
        raise _invalid(text, "it must be an absolute path or s3://BUCKET/PREFIX")
    before, named, _ = folder.partition(_TENANT)
    fixed = before.rpartition("/")[0] if named else folder
    if Path(os.path.realpath(fixed)).is_relative_to(data) or (not named and _overlap(folder, data)):
        raise _invalid(text, "it overlaps with the data directory of the service")
    return folder


def _prefix(text: str, settings: Settings) -> "S3Address":
    from penstock.backends.storage.s3 import S3Address

    try:
        root = S3Address.of(urlsplit(text))
    except SettingInvalid as error:
        raise _invalid(text, str(error.facts["why"])) from None
    store = urlsplit(settings.store_url)
    if store.scheme == "s3":
        lake, fixed = S3Address.of(store), root.path("").partition(_TENANT)[0]
        inside = f"{lake.path('')}/".startswith(fixed) or fixed.startswith(f"{lake.path('')}/")
        if inside and root.endpoint == lake.endpoint and (_TENANT not in root.path("")):
            raise _invalid(text, "it overlaps with the lake of the service")
    return root
