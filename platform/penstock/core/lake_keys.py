"""The two keys of a lake, in files: one seals secrets in the database, one signs documents."""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.files import make_private_once
from penstock.core.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Names in the data directory.
KEY_NAME, SIGNING_KEY_NAME = "secret.key", "signing.key"
_KEY_FILE_BYTES_MAX = 64 * 1024


class SecretKeyUnfit(PenstockError, exit_status=2):
    """The key of secrets in the database, {file}, cannot be used: {why}."""


class SigningKeyUnfit(PenstockError, exit_status=2):
    """The key that signs documents, {file}, cannot be used: {why}."""


class PublicKeyUnfit(PenstockError, exit_status=2):
    """{file} holds no public key of Ed25519 in PEM: {why}."""


@dataclass(frozen=True)
class _KeyFile:
    """A key that is read or made when it is needed."""

    #: Its name in the data directory, and the setting that names another file.
    default: ClassVar[str]
    setting: ClassVar[str]
    unfit: ClassVar[type[PenstockError]]
    #: What to do about a missing file.
    missing: ClassVar[str]

    file: Path
    #: Whether a missing key is made. One that the operator named is not.
    makes_key: bool = True

    @classmethod
    def of(cls, settings: Settings) -> Self:
        named = getattr(settings, cls.setting)
        return cls(Path(named or settings.data / cls.default), makes_key=not named)

    def read(self, new_key: Callable[[], bytes] | None = None) -> bytes:
        """Read the file, and make a missing one with `new_key`."""
        try:
            if new_key is not None and self.makes_key and not self.file.exists():
                make_private_once(self.file, new_key())
            with self.file.open("rb") as file:
                return file.read(_KEY_FILE_BYTES_MAX)
        except FileNotFoundError:
            raise self.unfit_because(f"there is no such file. {self.missing}") from None
        except OSError as error:
            raise self.unfit_because(error.strerror or str(error)) from error

    def unfit_because(self, why: str) -> PenstockError:
        return self.unfit(file=self.file, why=why)


# Sealing

#: Begins a sealed text; the name of its key and the encrypted text follow.
SEALED_MARK = "sealed:1:"
_SECRET_KEY_BYTES = 32
_SECRET_KEY_NAME_HEX = 12
_NONCE_BYTES = 12
#: How a person makes a key.
_SECRET_RECIPE = "head -c 32 /dev/urandom | base64 > FILE"


class SecretSeal(_KeyFile):
    """Seals texts for the database and opens them. The key is not in the database."""

    default, setting, unfit = KEY_NAME, "secret_key_file", SecretKeyUnfit
    missing = (
        "Copy it from the machine that has it, or from a backup; several machines with one database"
        " name the same key with PENSTOCK_SECRET_KEY_FILE. Make a new one with:"
        f" {_SECRET_RECIPE}"
    )

    def seal(self, text: str, place: str) -> str:
        self.read(_new_secret)
        cipher = self._cipher()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = nonce + cipher.encrypt(nonce, text.encode(), place.encode())
        encoded = base64.urlsafe_b64encode(content).decode()
        return f"{SEALED_MARK}{self._key_name}:{encoded}"

    def open(self, text: str, place: str) -> str:
        from cryptography.exceptions import InvalidTag

        changed = f"{place} was changed in the database; remove it, and add it again"
        if not text.startswith(SEALED_MARK):
            raise self.unfit_because(changed)
        cipher = self._cipher()
        name, _, encoded = text.removeprefix(SEALED_MARK).partition(":")
        if name != self._key_name:
            why = (
                f"secrets were encrypted with the key {name}, and this one is {self._key_name}."
                " Bring the other key back, or remove what has the secret and add it again"
            )
            raise self.unfit_because(why)
        try:
            content = base64.urlsafe_b64decode(encoded)
            nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            return str(cipher.decrypt(nonce, rest, place.encode()), "utf-8")
        except (InvalidTag, ValueError) as error:
            raise self.unfit_because(changed) from error

    def key_for(self, purpose: str) -> bytes:
        """Derive a key for something else than sealing. Raises SecretKeyUnfit."""
        self.read(_new_secret)
        return hmac.digest(self._key, b"penstock " + purpose.encode(), hashlib.sha256)

    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)

    @cached_property
    def _key(self) -> bytes:
        try:
            key = base64.b64decode(self.read().strip(), validate=True)
        except ValueError:
            key = b""
        if len(key) != _SECRET_KEY_BYTES:
            why = f"it does not hold {_SECRET_KEY_BYTES} bytes in base64: {_SECRET_RECIPE}"
            raise self.unfit_because(why)
        return key

    @property
    def _key_name(self) -> str:
        return hashlib.sha256(b"penstock key\0" + self._key).hexdigest()[:_SECRET_KEY_NAME_HEX]


def _new_secret() -> bytes:
    return base64.b64encode(secrets.token_bytes(_SECRET_KEY_BYTES)) + b"\n"


# Signing, with Ed25519 over JSON in one form: see docs/promote.md

ALGORITHM = "ed25519"
SIGNATURE = "signature"
_KEY_NAME_HEX = 16
#: How a person makes a key, and reads its public half.
_RECIPE = "openssl genpkey -algorithm ed25519 -out FILE"
_PUBLIC_RECIPE = "`penstock prove --public-key` prints it"


def canonical(document: Mapping[str, Any]) -> bytes:
    """Encode with sorted keys, no spaces and UTF-8: as RFC 8785 does, but for fractions."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def signed_document(content: bytes, name: str) -> dict[str, Any]:
    """Read a document that is to be checked. Raises InvalidInput, also where a key stands twice:
    readers would differ on what it says."""

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


class PublicKey(msgspec.Struct, frozen=True):
    """Checks signatures."""

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
        """The key's name in signatures."""
        return hashlib.sha256(self.raw).hexdigest()[:_KEY_NAME_HEX]

    @property
    def pem(self) -> str:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def signature(self, value: bytes) -> dict[str, str]:
        encoded = base64.b64encode(value).decode()
        return {"algorithm": ALGORITHM, "key": self.name, "value": encoded}

    def has_signed(self, document: Mapping[str, Any]) -> bool:
        """Whether the key's other half signed this document, to the letter."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        facts = dict(document)
        signature = facts.pop(SIGNATURE, None)
        try:
            value = base64.b64decode(signature["value"])
            Ed25519PublicKey.from_public_bytes(self.raw).verify(value, canonical(facts))
        except (InvalidSignature, ValueError, TypeError, KeyError):
            return False
        return bool(signature == self.signature(value))


class SigningKey(_KeyFile):
    """Signs documents of the lake."""

    default, setting, unfit = SIGNING_KEY_NAME, "signing_key_file", SigningKeyUnfit
    missing = (
        "Copy it from the machine that has it, or from a backup. Make a new one, for what is signed"
        f" from then on, with: {_RECIPE}"
    )

    @property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Add a signature to a document. Raises SigningKeyUnfit."""
        facts = {name: value for name, value in document.items() if name != SIGNATURE}
        return facts | {SIGNATURE: self.public.signature(self._key.sign(canonical(facts)))}

    @cached_property
    def _key(self) -> "Ed25519PrivateKey":
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(self.read(_new_signing_key), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            why = f"it does not hold a key in PEM without a password: {_RECIPE}"
            raise self.unfit_because(why) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise self.unfit_because(f"it is no key of Ed25519: {_RECIPE}")
        return key


#: Beside the key: public keys in PEM, one behind the other, whose signatures still count.
OLD_KEYS_SUFFIX = ".old"
_PEM_END = b"-----END PUBLIC KEY-----"


@dataclass(frozen=True)
class HeadKeys:
    """The key that signs heads of chains, and those that did before it."""

    own: SigningKey

    @classmethod
    def of(cls, settings: Settings) -> "HeadKeys | None":
        """The keys of an embedded lake. Machines that share a database have to name one key:
        otherwise none of them signs."""
        if settings.signing_key_file or settings.database_url.startswith("sqlite"):
            return cls(SigningKey.of(settings))
        return None

    def have_signed(self, document: Mapping[str, Any]) -> bool:
        """Raises SigningKeyUnfit, PublicKeyUnfit."""
        return any(key.has_signed(document) for key in (self.own.public, *self._old))

    @cached_property
    def _old(self) -> list[PublicKey]:
        file = self.own.file.with_name(self.own.file.name + OLD_KEYS_SUFFIX)
        content = file.read_bytes() if file.exists() else b""
        pems = [pem + _PEM_END for pem in content.split(_PEM_END) if pem.strip()]
        return [PublicKey.of_pem(pem, str(file)) for pem in pems]


def _new_signing_key() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
