"""Documents that the lake signs, with Ed25519 over JSON in one form: see docs/promote.md."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.core.directories import make_private_once
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: In the data directory.
SIGNING_KEY_NAME = "signing.key"
ALGORITHM = "ed25519"
SIGNATURE = "signature"
_KEY_NAME_HEX = 16
_KEY_FILE_BYTES_MAX = 64 * 1024
#: How a person makes a key, and reads its public half.
_RECIPE = "openssl genpkey -algorithm ed25519 -out FILE"
_PUBLIC_RECIPE = "`penstock prove --public-key` prints it"


class SigningKeyUnfit(PenstockError, exit_status=2):
    """The key that documents are signed with, {file}, cannot be used: {why}."""


class PublicKeyUnfit(PenstockError, exit_status=2):
    """{file} holds no public key of Ed25519 in PEM: {why}."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """Sorted keys, no spaces, UTF-8: without fractions it is what RFC 8785 says."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def without_signature(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != SIGNATURE}


def signed_document(content: bytes, name: str) -> dict[str, Any]:
    """Read a document that is to be checked. Readers would see different things in one with a key
    twice, which is refused. Raises InvalidInput."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            raise ValueError("a key stands twice in it")
        return fields

    try:
        document = json.loads(content, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what=name, why=str(error)) from error
    if not isinstance(document, dict):
        raise InvalidInput(what=name, why="it is no JSON object")
    return document


@dataclass(frozen=True)
class PublicKey:
    """Checks what was signed."""

    raw: bytes

    @classmethod
    def of_pem(cls, content: bytes, file: str) -> Self:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(content)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise PublicKeyUnfit(file=file, why=_PUBLIC_RECIPE) from error
        if not isinstance(key, Ed25519PublicKey):
            raise PublicKeyUnfit(file=file, why="it is a key of another kind")
        return cls(key.public_bytes_raw())

    @property
    def name(self) -> str:
        """The name in signatures."""
        return hashlib.sha256(self.raw).hexdigest()[:_KEY_NAME_HEX]

    @property
    def pem(self) -> str:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def has_signed(self, document: Mapping[str, Any]) -> bool:
        """Whether a document is, to the letter, one that was signed with this key's other half."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        signature = document.get(SIGNATURE)
        if not isinstance(signature, dict) or signature.keys() != {"algorithm", "key", "value"}:
            return False
        if signature["algorithm"] != ALGORITHM or signature["key"] != self.name:
            return False
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        try:
            value = base64.b64decode(str(signature["value"]), validate=True)
            if base64.b64encode(value).decode() != signature["value"]:
                return False
            key.verify(value, canonical(without_signature(document)))
        except (InvalidSignature, binascii.Error, UnicodeEncodeError):
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """The lake's own key, read or made when it is needed."""

    file: Path
    #: A missing key is made, but where the operator named a file.
    makes_key: bool = True

    @classmethod
    def of(cls, settings: Settings) -> Self:
        named = settings.signing_key_file
        return cls(Path(named) if named else settings.data / SIGNING_KEY_NAME, makes_key=not named)

    @property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Add a signature to a document. Raises SigningKeyUnfit."""
        facts = without_signature(document)
        value = base64.b64encode(self._key.sign(canonical(facts))).decode()
        signature = {"algorithm": ALGORITHM, "key": self.public.name, "value": value}
        return facts | {SIGNATURE: signature}

    @cached_property
    def _key(self) -> "Ed25519PrivateKey":
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            if self.makes_key and not self.file.exists():
                make_private_once(self.file, _new_key())
            with self.file.open("rb") as file:
                content = file.read(_KEY_FILE_BYTES_MAX)
        except FileNotFoundError:
            why = (
                "there is no such file. Copy it from the machine that has it, or from a backup; a"
                f" new one, which signs what is written from then on, is made by: {_RECIPE}"
            )
            raise SigningKeyUnfit(file=self.file, why=why) from None
        except OSError as error:
            why = error.strerror or str(error)
            raise SigningKeyUnfit(file=self.file, why=why) from error
        try:
            key = load_pem_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            why = f"it does not hold a key in PEM without a password: {_RECIPE}"
            raise SigningKeyUnfit(file=self.file, why=why) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise SigningKeyUnfit(file=self.file, why=f"it is no key of Ed25519: {_RECIPE}")
        return key


def _new_key() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
