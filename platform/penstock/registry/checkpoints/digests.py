"""Digests of checkpoints, computed from the files at an address.

The digest of a folder is the SHA-256 of a list of its files, sorted by their paths as bytes. Each
line holds path, size and SHA-256, separated by zero bytes."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.backends.storage.object_store import StoreRefused, StoreUnreachable
from penstock.core.errors import ExtraMissing, InvalidInput, SettingInvalid, one_line
from penstock.core.files import DIGEST_PREFIX, relative_name
from penstock.core.settings import ENVIRONMENT_PREFIX, Settings, load_settings, without_secrets
from penstock.registry.checkpoints.artifact_roots import ArtifactFolder, ArtifactRoots
from penstock.registry.checkpoints.checkpoint import Form

ReadProgress = Callable[[int], object]

_BLOCK_BYTES = 4 * 1024 * 1024
_URI_CHARS_MAX = 4_000
#: Schemes of addresses whose files can be read.
_LOCAL, _BUCKET = ("", "file"), "s3"


class CheckpointFile(NamedTuple):
    path: str
    size: int
    sha256: str


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class SourceFile:
    """A file to read. `path` is its place within a folder."""

    path: str
    size: int
    open: Callable[[], AbstractContextManager[Readable]]


class FilesDigest(msgspec.Struct, frozen=True):
    digest: str | None = None
    bytes: int | None = None
    why: str = ""


def text_digest(text: str) -> str:
    # A damaged database may give bytes: they have another digest.
    return DIGEST_PREFIX + hashlib.sha256(str(text).encode()).hexdigest()


def folder_digest(files: Iterable[CheckpointFile]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: os.fsencode(file.path)):
        digest.update(b"%b\0%d\0%b\n" % (os.fsencode(file.path), file.size, file.sha256.encode()))
    return DIGEST_PREFIX + digest.hexdigest()


def check_uri(uri: str) -> str:
    """Check the address of a checkpoint, which must hold no password. Raises InvalidInput."""
    if not 0 < len(uri) <= _URI_CHARS_MAX or not uri.isprintable() or uri != uri.strip():
        why = f"an address must be printable text of at most {_URI_CHARS_MAX} characters"
        raise InvalidInput(what="The address of the checkpoint", why=why)
    if without_secrets(uri) != uri:
        why = "an address must not contain keys: everybody who watches the channel sees it"
        raise InvalidInput(what=f"The address {without_secrets(uri)}", why=why)
    try:
        address = urlsplit(uri)
    except ValueError as error:
        raise InvalidInput(what=f"The address {uri}", why=str(error)) from error
    if "\0" in unquote(address.path):
        raise InvalidInput(what=f"The address {uri}", why="file names cannot contain a zero byte")
    if address.scheme in _LOCAL and not path_of(uri).is_absolute():
        why = "a path must be absolute"
        raise InvalidInput(what=f"The address {uri}", why=why)
    if address.scheme == "file" and address.netloc not in ("", "localhost"):
        raise InvalidInput(what=f"The address {uri}", why="file:// must be followed by a path")
    return uri


def can_read_files(uri: str) -> bool:
    return urlsplit(uri).scheme in (*_LOCAL, _BUCKET)


def is_path(uri: str) -> bool:
    """Whether an address is a path of this machine."""
    return urlsplit(uri).scheme in _LOCAL


def path_of(uri: str) -> Path:
    address = urlsplit(uri)
    return Path(unquote(address.path)) if address.scheme == "file" else Path(uri)


def digest_files(
    uri: str,
    settings: Settings,
    progress: ReadProgress = lambda _bytes: None,
    roots: ArtifactRoots | None = None,
) -> FilesDigest:
    """Compute the digest of files: within the roots, or wherever this process may read. Raises
    InvalidInput."""
    scheme = urlsplit(uri).scheme
    if roots is not None and not roots.hold(uri):
        return FilesDigest(why="it is outside of the artifact roots")
    if not can_read_files(uri):
        return FilesDigest(why=f"files at {scheme}: addresses are not read")
    try:
        place = roots.folder_of(uri) if roots is not None else None
        sources, is_folder = _inside(*place) if place else source_files(uri, settings)
        files = []
        for source in sources:
            with source.open() as content:
                digested = digest_of(content, progress)
            files.append(CheckpointFile(relative_name(source.path), *digested))
        if not files:
            raise InvalidInput(what=f"The folder {uri}", why="it contains no files")
        digest = folder_digest(files) if is_folder else DIGEST_PREFIX + files[0].sha256
        return FilesDigest(digest, sum(file.size for file in files))
    except (StoreUnreachable, StoreRefused, ExtraMissing) as error:
        return FilesDigest(why=one_line(error))
    except SettingInvalid as error:
        raise InvalidInput(what=f"The address {uri}", why=error.facts["why"]) from error
    except OSError as error:
        return FilesDigest(why=f"{error.filename or uri}: {error.strerror or error}")


def source_files(uri: str, settings: Settings) -> tuple[list[SourceFile], bool]:
    if urlsplit(uri).scheme == _BUCKET:
        return _in_bucket(uri, settings)
    path = path_of(uri)
    is_folder = path.is_dir()
    files = []
    for file in files_below(path) if is_folder else [path]:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(what=str(file), why="it is not a regular file")
        name = file.relative_to(path).as_posix() if is_folder else path.name
        files.append(SourceFile(name, status.st_size, partial(FileIO, file)))
    return files, is_folder


def _in_bucket(uri: str, settings: Settings) -> tuple[list[SourceFile], bool]:
    """The files below a prefix, or the single object of that name."""
    from penstock.backends.storage import open_store

    folder = open_store(replace(settings, store_url=uri))
    if objects := sorted(folder.list()):
        opens = [partial(folder.open, each.name) for each in objects]
        named = zip(objects, opens, strict=True)
        return [SourceFile(each.name, each.size, opened) for each, opened in named], True
    address = urlsplit(uri)
    above, _, last = address.path.rstrip("/").rpartition("/")
    store, name = (
        open_store(replace(settings, store_url=address._replace(path=above).geturl())),
        unquote(last),
    )
    try:
        with store.open(name) as file:
            size = file.size()
    except FileNotFoundError:
        raise FileNotFoundError(2, "nothing is there", uri) from None
    return [SourceFile(name, size, partial(store.open, name))], False


def _inside(folder: ArtifactFolder, path: str) -> tuple[Iterable[SourceFile], bool]:
    """The files of a folder in an artifact root, or the file."""

    @contextmanager
    def opened(inner: str) -> Iterator[BinaryIO]:
        with folder.open(inner) as descriptor, open(descriptor, "rb", closefd=False) as file:
            yield file

    with folder.open(path) as descriptor:
        facts = os.fstat(descriptor)
    if not stat.S_ISDIR(facts.st_mode):
        return [SourceFile(Path(path).name, facts.st_size, partial(opened, path))], False
    found = folder.files(path)
    return (SourceFile(*each, partial(opened, f"{path}/{each[0]}")) for each in found), True


def files_below(folder: Path) -> Iterator[Path]:

    def refuse(error: OSError) -> None:
        raise error

    for above, folders, files in os.walk(folder, onerror=refuse):
        for path in (Path(above) / name for name in folders):
            if path.is_symlink():
                why = "it is a link to a folder; name the folder itself"
                raise InvalidInput(what=str(path), why=why)
        yield from (Path(above) / name for name in files)


def digest_of(
    content: Readable, progress: ReadProgress, target: BinaryIO | None = None
) -> tuple[int, str]:
    """Compute the size and SHA-256 of a file, and copy it to the target."""
    size, sha256 = 0, hashlib.sha256()
    while block := content.read(_BLOCK_BYTES):
        progress(len(block))
        sha256.update(block)
        size += len(block)
        if target is not None:
            target.write(block)
    return size, sha256.hexdigest()


def trained(
    made: str | os.PathLike[str],
    *,
    form: Form = "whole",
    note: str = "",
    uri: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Write a trainer's answer for a complete file, folder or s3://… address."""
    environment = os.environ if environment is None else environment
    text = os.fspath(made)
    where = check_uri(text if "://" in text else Path(text).absolute().as_uri())
    files = digest_files(where, load_settings(environment=environment))
    if files.digest is None:
        raise InvalidInput(what=f"What was trained, {text},", why=files.why)
    answer = {"uri": check_uri(uri or where), "digest": files.digest, "form": str(form)}
    answer |= {"note": note} if note else {}
    if name := environment.get(f"{ENVIRONMENT_PREFIX}ANSWER"):
        from penstock.backends.storage.object_store import FileStore

        path = Path(name)
        with FileStore(path.parent).create(path.name) as file:
            file.write(msgspec.json.encode(answer))
    return answer
