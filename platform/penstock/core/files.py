"""Files and folders: durable, private, with names that lead nowhere else."""

import hashlib
import os
import re
import stat
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidInput

#: Only the owner can read what Penstock makes, whatever the umask.
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
#: Less the umask: others read what trainers make outside of the data directory.
SHARED_MODE = 0o777
_OTHERS = 0o077


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> None:
    """Make a directory, with those above it."""
    if not path.is_dir():
        make_directory(path.parent, mode)
        path.mkdir(mode, exist_ok=True)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_private(path: Path, mode: str, **how: Any) -> Any:
    """Open a file. A new one is readable by its owner alone."""
    return open(path, mode, opener=_private, **how)


def make_private_once(path: Path, content: bytes) -> None:
    """Make a private file durably. The first of several processes wins."""
    make_directory(path.parent)
    unfinished = path.with_name(f".{path.name}-{os.urandom(4).hex()}")
    with open_private(unfinished, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        unfinished.unlink()
    sync_directory(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def make_private(directory: Path) -> bool:
    """Close a directory, with all in it, to everybody but its owner. False if nothing changed."""
    try:
        status = directory.stat()
    except OSError:
        return False
    shared = status.st_mode & stat.S_ISVTX or status.st_uid != os.geteuid()
    if shared or not status.st_mode & _OTHERS:
        return False
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118
            with suppress(OSError):
                mode = os.lstat(path).st_mode
                if mode & _OTHERS and not stat.S_ISLNK(mode):
                    os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS)  # noqa: PTH101
    directory.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return True


# Names of files that others wrote

DIGEST_PREFIX = "sha256:"
#: Limits of file systems for a part of a path, and of S3 for a whole name.
PART_BYTES_MAX = 255
NAME_BYTES_MAX = 1024
_SHOWN_CHARS_MAX = 200

#: Penstock's own names need no further look.
_PLAIN = re.compile(
    r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}/){0,4}[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}"
)
_DIGITS = re.compile("[0-9a-f]{64}")
_READABLE_CHARS_MAX = 40
_PLAIN_TENANT = re.compile(f"[a-z0-9_-]{{1,{_READABLE_CHARS_MAX}}}")
_NOT_PLAIN = re.compile("[^a-z0-9_-]")
#: No two tenants of a service share 96 bits.
_TENANT_DIGITS = 24
#: Characters that move a cursor or end a line.
_UNSEEN = {"Cc", "Zl", "Zp"}


class NameUnsafe(InvalidInput, ValueError):
    """{what} cannot be used: {why}."""


def relative_name(text: str) -> str:
    """Check a file name below a folder. Raises NameUnsafe where it leads elsewhere."""
    if why := _unfit(text):
        raise NameUnsafe(what=f"The file name {text[:_SHOWN_CHARS_MAX]!r}", why=why)
    return text


def is_relative_name(text: str) -> bool:
    return not _unfit(text)


def sha256_digits(text: str) -> str:
    """Check the 64 digits of a SHA-256. Raises NameUnsafe."""
    if not _DIGITS.fullmatch(text):
        why = "a checksum is 64 hexadecimal digits in lower case"
        raise NameUnsafe(what=f"The checksum {text[:_SHOWN_CHARS_MAX]!r}", why=why)
    return text


def sha256_digest(text: str) -> str:
    """Check a digest: `sha256:` and 64 digits. Raises NameUnsafe."""
    if not (text.startswith(DIGEST_PREFIX) and _DIGITS.fullmatch(text, len(DIGEST_PREFIX))):
        why = "a digest is `sha256:` and 64 hexadecimal digits"
        raise NameUnsafe(what=f"The digest {text[:_SHOWN_CHARS_MAX]!r}", why=why)
    return text


def tenant_folder(tenant: str) -> str:
    """Name the folder of a tenant's files. No other tenant has it."""
    if _PLAIN_TENANT.fullmatch(tenant):
        return f"t-{tenant}"
    readable = _NOT_PLAIN.sub("_", tenant.lower())[:_READABLE_CHARS_MAX]
    digest = hashlib.sha256(tenant.encode(errors="surrogatepass")).hexdigest()
    return f"t-{readable}.{digest[:_TENANT_DIGITS]}"


def _unfit(name: str) -> str:
    """Say why this names no file below a folder; empty where it does."""
    if _PLAIN.fullmatch(name):
        return ""
    try:
        # Names of files may hold bytes that are no text, as half characters.
        parts = [os.fsencode(part) for part in name.split("/")]
    except UnicodeEncodeError:
        return "it holds half a character"
    if any(part in (b"", b".", b"..") for part in parts):
        return "it leads out of its folder, or is not relative"
    if "\\" in name or any(unicodedata.category(char) in _UNSEEN for char in name):
        return "it holds a backslash or a control character"
    longest = max(map(len, parts))
    if longest > PART_BYTES_MAX or sum(map(len, parts)) + len(parts) - 1 > NAME_BYTES_MAX:
        return f"it is over {NAME_BYTES_MAX} bytes, or a part of it over {PART_BYTES_MAX}"
    return ""
