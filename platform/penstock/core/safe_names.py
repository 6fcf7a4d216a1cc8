"""Names and digests that others wrote: paths are made of them only after they went through here."""

import hashlib
import os
import re
import unicodedata

from penstock.core.errors import InvalidInput

DIGEST_PREFIX = "sha256:"
#: File systems take this for one part of a path, and S3 for a whole name.
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
    """A file name below a folder that leads nowhere else. Raises NameUnsafe."""
    if why := _unfit(text):
        raise NameUnsafe(what=f"The file name {text[:_SHOWN_CHARS_MAX]!r}", why=why)
    return text


def is_relative_name(text: str) -> bool:
    return not _unfit(text)


def sha256_digits(text: str) -> str:
    """A SHA-256 as 64 hexadecimal digits in lower case. Raises NameUnsafe."""
    if not _DIGITS.fullmatch(text):
        why = "a checksum is 64 hexadecimal digits in lower case"
        raise NameUnsafe(what=f"The checksum {text[:_SHOWN_CHARS_MAX]!r}", why=why)
    return text


def sha256_digest(text: str) -> str:
    """`sha256:` and 64 digits. Raises NameUnsafe."""
    if not (text.startswith(DIGEST_PREFIX) and _DIGITS.fullmatch(text, len(DIGEST_PREFIX))):
        why = "a digest is `sha256:` and 64 hexadecimal digits"
        raise NameUnsafe(what=f"The digest {text[:_SHOWN_CHARS_MAX]!r}", why=why)
    return text


def tenant_folder(tenant: str) -> str:
    """The part of a path that only this tenant's files lie under."""
    if _PLAIN_TENANT.fullmatch(tenant):
        return f"t-{tenant}"
    readable = _NOT_PLAIN.sub("_", tenant.lower())[:_READABLE_CHARS_MAX]
    digest = hashlib.sha256(tenant.encode(errors="surrogatepass")).hexdigest()
    return f"t-{readable}.{digest[:_TENANT_DIGITS]}"


def _unfit(name: str) -> str:
    """Why this names no file below a folder."""
    if _PLAIN.fullmatch(name):
        return ""
    try:
        # Names of files may hold bytes that are no text, as half characters.
        parts = [os.fsencode(part) for part in name.split("/")]
    except UnicodeEncodeError:
        return "it holds half a character"
    if any(part in (b"", b".", b"..") for part in parts):
        return "it leads out of its folder, or is no relative name"
    if "\\" in name or any(unicodedata.category(char) in _UNSEEN for char in name):
        return "it holds a backslash or a control character"
    longest = max(map(len, parts))
    if longest > PART_BYTES_MAX or sum(map(len, parts)) + len(parts) - 1 > NAME_BYTES_MAX:
        return f"it is longer than {NAME_BYTES_MAX} bytes, or a part than {PART_BYTES_MAX}"
    return ""
