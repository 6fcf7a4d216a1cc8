"""Placeholders: what stands where a secret or somebody's data stood.

The digest is keyed, so that equal secrets stay equal, and nobody who guesses one can check the
guess by hashing it."""

import hashlib
import re
from typing import Literal

Kind = Literal["secret", "personal"]

_DIGEST_BYTES = 8
#: How each placeholder begins, in bytes.
MARKS = (b"[SECRET:", b"[PERSONAL:")
PLACEHOLDER = re.compile(r"\[(?:SECRET|PERSONAL):[a-z0-9_]{1,40}:[0-9a-f]{16}\]")


def placeholder(kind: Kind, type_: str, value: str, key: bytes) -> str:
    content = value.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES, key=key).hexdigest()
    return f"[{kind.upper()}:{type_}:{digest}]"
