"""Secrets in the database are sealed: encrypted with a key that is not there."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.core.directories import make_private_once
from penstock.core.errors import PenstockError
from penstock.core.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: In the data directory.
KEY_NAME = "secret.key"
#: Begins a sealed text; the name of its key and the encrypted text follow.
SEALED_MARK = "sealed:1:"
_KEY_BYTES = 32
_KEY_NAME_HEX = 12
_NONCE_BYTES = 12
#: How a person makes a key.
_RECIPE = "head -c 32 /dev/urandom | base64 > FILE"


class SecretKeyUnfit(PenstockError, exit_status=2):
    """The key of secrets in the database, {file}, cannot be used: {why}."""


@dataclass(frozen=True)
class SecretSeal:
    """Seals texts and opens them, with a key that is read or made when it is needed."""

    file: Path
    #: A missing key is made, but where the operator named a file.
    makes_key: bool = True

    @classmethod
    def of(cls, settings: Settings) -> Self:
        named = settings.secret_key_file
        return cls(Path(named) if named else settings.data / KEY_NAME, makes_key=not named)

    def seal(self, text: str, place: str) -> str:
        self._make_missing()
        cipher = self._cipher()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = nonce + cipher.encrypt(nonce, text.encode(), place.encode())
        encoded = base64.urlsafe_b64encode(content).decode()
        return f"{SEALED_MARK}{self._key_name}:{encoded}"

    def open(self, text: str, place: str) -> str:
        from cryptography.exceptions import InvalidTag

        changed = f"{place} was changed in the database since; remove it, and add it again"
        if not text.startswith(SEALED_MARK):
            raise self._unfit(changed)
        cipher = self._cipher()
        name, _, encoded = text.removeprefix(SEALED_MARK).partition(":")
        if name != self._key_name:
            why = (
                f"they were encrypted with the key {name}, and this one is {self._key_name}. Bring"
                " the other key back, or remove what has the secret and add it again"
            )
            raise self._unfit(why)
        try:
            content = base64.urlsafe_b64decode(encoded)
            nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            return str(cipher.decrypt(nonce, rest, place.encode()), "utf-8")
        except (InvalidTag, ValueError) as error:
            raise self._unfit(changed) from error

    def key_for(self, purpose: str) -> bytes:
        """A key of the lake for something else than sealing. Raises SecretKeyUnfit."""
        self._make_missing()
        return hmac.digest(self._key, b"penstock " + purpose.encode(), hashlib.sha256)

    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)

    def _make_missing(self) -> None:
        if not self.makes_key or self.file.exists():
            return
        try:
            key = base64.b64encode(secrets.token_bytes(_KEY_BYTES))
            make_private_once(self.file, key + b"\n")
        except OSError as error:
            raise self._unfit(error.strerror or str(error)) from error

    @cached_property
    def _key(self) -> bytes:
        try:
            key = base64.b64decode(self.file.read_bytes().strip(), validate=True)
        except FileNotFoundError:
            why = (
                "there is no such file. Copy it from the machine that has it, or from a backup;"
                " several machines with one database name the same key with"
                f" PENSTOCK_SECRET_KEY_FILE. A new one is made by: {_RECIPE}"
            )
            raise self._unfit(why) from None
        except OSError as error:
            raise self._unfit(error.strerror or str(error)) from error
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            raise self._unfit(f"it does not hold {_KEY_BYTES} bytes in base64: {_RECIPE}")
        return key

    @property
    def _key_name(self) -> str:
        return hashlib.sha256(b"penstock key\0" + self._key).hexdigest()[:_KEY_NAME_HEX]

    def _unfit(self, why: str) -> SecretKeyUnfit:
        return SecretKeyUnfit(file=self.file, why=why)
