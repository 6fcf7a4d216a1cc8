"""A server that speaks the part of Vault's transit engine that Penstock asks, and truly wraps."""

import base64
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.servers.scripted_server import Answer, Asked, Server, answering

TOKEN = "s.a-token"
PATH = "/v1/transit/penstock"


class TransitKey:
    def __init__(self) -> None:
        self._cipher = AESGCM(secrets.token_bytes(32))

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("x-vault-token") != TOKEN:
            return _answer(403, errors=["permission denied"])
        document = asked.document
        associated = base64.b64decode(document["associated_data"])
        if asked.path == "/v1/transit/encrypt/penstock":
            nonce = secrets.token_bytes(12)
            plaintext = base64.b64decode(document["plaintext"])
            sealed = nonce + self._cipher.encrypt(nonce, plaintext, associated)
            return _answer(data={"ciphertext": f"vault:v1:{base64.b64encode(sealed).decode()}"})
        if asked.path == "/v1/transit/decrypt/penstock":
            sealed = base64.b64decode(document["ciphertext"].removeprefix("vault:v1:"))
            try:
                plaintext = self._cipher.decrypt(sealed[:12], sealed[12:], associated)
            except InvalidTag:
                return _answer(400, errors=["cipher: message authentication failed"])
            return _answer(data={"plaintext": base64.b64encode(plaintext).decode()})
        return _answer(404, errors=[])


def _answer(status: int = 200, **content: object) -> Answer:
    return Answer(status, json.dumps(content))


@contextmanager
def transit_server() -> Iterator[Server]:
    server = Server(script=TransitKey().answer)
    with answering(server, PATH):
        yield server
