"""An OpenID provider that signs everybody in as its script says: discovery, authorization with
PKCE, tokens signed with RS256."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.servers.scripted_server import Answer, Asked, Server, answering

CLIENT, SECRET = "penstock-console", "the client's secret"
_JSON = {"Content-Type": "application/json"}


@dataclass
class Provider:
    """`claims` are in the next token, over what belongs there; `key_id` names its key."""

    server: Server = field(default_factory=Server)
    claims: dict[str, Any] = field(default_factory=dict)
    key_id: str = "k1"
    #: Signs tokens; another one makes them forged.
    signing: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    forged: bool = False
    issued: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url

    def answer(self, asked: Asked) -> Answer:
        place = urlsplit(asked.path)
        match place.path.rpartition("/")[2]:
            case "openid-configuration":
                document = {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/keys",
                }
                return Answer(body=json.dumps(document), headers=_JSON)
            case "authorize":
                fields = _single(place.query)
                code = secrets.token_urlsafe()
                self.issued[code] = fields
                back = urlencode({"code": code, "state": fields["state"]})
                return Answer(302, headers={"Location": f"{fields['redirect_uri']}?{back}"})
            case "keys":
                key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.signing.public_key()))
                keys = [key | {"kid": self.key_id, "use": "sig", "alg": "RS256"}]
                return Answer(body=json.dumps({"keys": keys}), headers=_JSON)
            case "token":
                return self._token(_single(asked.body.decode()))
        return Answer(404)

    def _token(self, fields: dict[str, str]) -> Answer:
        begun = self.issued.pop(fields["code"], None)
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        fits = begun is not None and (
            begun["code_challenge"] == challenge
            and begun["redirect_uri"] == fields["redirect_uri"]
            and fields.get("client_secret") == SECRET
        )
        if begun is None or not fits:
            return Answer(400, json.dumps({"error": "invalid_grant"}), _JSON)
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": CLIENT, "sub": "u-1", "iat": now, "exp": now + 300,
            "nonce": begun["nonce"],
        } | self.claims  # fmt: skip
        key = self.signing
        if self.forged:
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        token = jwt.encode(claims, key, "RS256", headers={"kid": self.key_id})
        return Answer(body=json.dumps({"id_token": token, "token_type": "Bearer"}), headers=_JSON)


@contextmanager
def scripted_provider() -> Iterator[Provider]:
    provider = Provider()
    provider.server.script = provider.answer
    with answering(provider.server, ""):
        yield provider


def _single(query: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(query).items()}
