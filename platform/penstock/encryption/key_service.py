"""Who guards the keys: a service that wraps data keys and unwraps them, for their owner alone."""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from penstock.encryption.errors import KeyServiceRefused, KeyServiceUnreachable, MasterKeysUnfit
from penstock.encryption.sealed_file import KEY_BYTES
from penstock.encryption.settings import EncryptionSettings
from penstock.errors import SettingInvalid
from penstock.http.address import HttpAddress
from penstock.http.client import HttpClient
from penstock.http.egress import EgressPolicy
from penstock.settings import Settings, without_secrets

_NONCE_BYTES = 12
_KEY_NAME_HEX = 12
_SECONDS_MAX = 5.0
_ANSWER_BYTES_MAX = 64 * 1024
_OTHERS_MODES = 0o077


class UnwrapFailed(Exception):
    """The wrapped key is not one of this service's, or of another owner."""


class KeyService(Protocol):
    """Raises KeyServiceUnreachable, KeyServiceRefused, MasterKeysUnfit."""

    def wrap(self, key: bytes, owner: str) -> str:
        """A text that only the service makes a key of again."""

    def unwrap(self, wrapped: str, owner: str) -> bytes:
        """Raises UnwrapFailed where it was wrapped by another service, or for another owner."""


def open_key_service(settings: Settings) -> KeyService | None:
    """None where encryption is off. Raises SettingInvalid."""
    room = settings.room(EncryptionSettings)
    match room.encryption:
        case "file":
            if not room.encryption_key_file:
                raise _missing("encryption_key_file", "file")
            return FileKeyService(Path(room.encryption_key_file))
        case "kms":
            if not room.kms_url:
                raise _missing("kms_url", "kms")
            egress = EgressPolicy.for_operator(settings)
            return TransitKeyService(room.kms_url, Path(room.kms_token_file), egress)
    return None


def _missing(name: str, kind: str) -> SettingInvalid:
    why = f"it is empty, and PENSTOCK_ENCRYPTION is {kind}"
    return SettingInvalid(name=name, origin="the settings", why=why)


@dataclass(frozen=True)
class FileKeyService:
    """Master keys in a file. The first one wraps; all of them unwrap."""

    file: Path

    def wrap(self, key: bytes, owner: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        master = self._masters()[0]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = nonce + AESGCM(master).encrypt(nonce, key, owner.encode())
        return f"file:{_name_of(master)}:{base64.b64encode(content).decode()}"

    def unwrap(self, wrapped: str, owner: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        kind, _, rest = wrapped.partition(":")
        name, _, encoded = rest.partition(":")
        if kind != "file":
            raise UnwrapFailed("it was wrapped by another key service")
        masters = {_name_of(master): master for master in self._masters()}
        if name not in masters:
            raise UnwrapFailed(f"its master key {name} is not in {self.file}")
        content = base64.b64decode(encoded)
        nonce, sealed = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        try:
            return AESGCM(masters[name]).decrypt(nonce, sealed, owner.encode())
        except InvalidTag:
            raise UnwrapFailed("it was wrapped for another owner, or changed") from None

    def _masters(self) -> list[bytes]:
        try:
            lines = self.file.read_bytes().split()
            modes = self.file.stat().st_mode & _OTHERS_MODES
        except OSError as error:
            raise MasterKeysUnfit(file=self.file, why=error.strerror or str(error)) from error
        if modes:
            raise MasterKeysUnfit(file=self.file, why="other users of the machine can read it")
        try:
            masters = [base64.b64decode(line, validate=True) for line in lines]
        except ValueError:
            masters = []
        if not masters or any(len(master) != KEY_BYTES for master in masters):
            why = f"each line has to be {KEY_BYTES} bytes in base64"
            raise MasterKeysUnfit(file=self.file, why=why)
        return masters


def _name_of(master: bytes) -> str:
    return hashlib.sha256(b"penstock master key\0" + master).hexdigest()[:_KEY_NAME_HEX]


class _TransitData(msgspec.Struct):
    ciphertext: str = ""
    plaintext: str = ""


class _TransitAnswer(msgspec.Struct):
    data: _TransitData = msgspec.field(default_factory=_TransitData)
    errors: list[str] = []


class TransitKeyService:
    """A key of the transit engine of Vault or OpenBao, which never leaves it."""

    def __init__(self, url: str, token_file: Path, egress: EgressPolicy | None) -> None:
        """Raises SettingInvalid, InvalidInput."""
        self._where = without_secrets(url)
        self._token_file = token_file
        self._address = HttpAddress.of(url, "The address of the key service")
        self._egress = egress
        engine, _, self._key = urlsplit(url).path.rpartition("/")
        if not engine.startswith("/v1/") or not self._key:
            why = "it is not https://HOST:PORT/v1/ENGINE/KEY"
            raise SettingInvalid(name="kms_url", origin="the settings", why=why)
        self._engine = engine

    def wrap(self, key: bytes, owner: str) -> str:
        return self._ask("encrypt", owner, plaintext=base64.b64encode(key).decode()).ciphertext

    def unwrap(self, wrapped: str, owner: str) -> bytes:
        if wrapped.startswith("file:"):
            raise UnwrapFailed("it was wrapped by another key service")
        return base64.b64decode(self._ask("decrypt", owner, ciphertext=wrapped).plaintext)

    def _ask(self, verb: str, owner: str, **content: str) -> _TransitData:
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            why = f"no token from {self._token_file}: {error.strerror or error}"
            raise KeyServiceRefused(where=self._where, why=why) from error
        body = {**content, "associated_data": base64.b64encode(owner.encode()).decode()}
        client = HttpClient(
            self._address,
            seconds_max=_SECONDS_MAX,
            egress=self._egress,
            bytes_max=_ANSWER_BYTES_MAX,
        )
        headers = {"X-Vault-Token": token, "Content-Type": "application/json"}
        target = f"{self._engine}/{verb}/{self._key}"
        answer = client.request("POST", headers, msgspec.json.encode(body), target=target)
        answer = answer.if_whole() if answer.status == 200 else answer
        if not answer.status or answer.status in (429, 473) or answer.status >= 500:
            why = answer.problem or f"it answered {answer.status}"
            raise KeyServiceUnreachable(where=self._where, why=why)
        try:
            decoded = msgspec.json.decode(answer.body, type=_TransitAnswer)
        except msgspec.MsgspecError:
            decoded = _TransitAnswer()
        if answer.status == 400 and verb == "decrypt":
            raise UnwrapFailed("; ".join(decoded.errors) or "the key service cannot open it")
        expected = decoded.data.ciphertext if verb == "encrypt" else decoded.data.plaintext
        if answer.status != 200 or not expected:
            why = "; ".join(decoded.errors) or f"it answered {answer.status}"
            raise KeyServiceRefused(where=self._where, why=why)
        return decoded.data
