"""Signing in through an OpenID provider: the authorization code flow with PKCE.

The members of a group have the rights of a key."""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from penstock.backends.http.address import HttpAddress
from penstock.backends.http.client import HttpClient
from penstock.core.errors import ExtraMissing, InvalidInput
from penstock.doors.console.sign_in import ProviderUnusable, SignInRefused
from penstock.doors.settings import ConsoleSettings

_SECONDS_MAX, _BYTES_MAX = 10.0, 1024 * 1024
_LEEWAY_SECONDS = 60
_TOKEN_BYTES = 24
#: Algorithms without a shared secret.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
_NAME_CHARS_MAX = 200

T = TypeVar("T")


class Challenge(msgspec.Struct, frozen=True):
    state: str
    nonce: str
    verifier: str
    next_path: str

    @property
    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


class ProviderDocument(msgspec.Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class TokenAnswer(msgspec.Struct):
    id_token: str


@dataclass(frozen=True)
class Person:
    name: str
    key: str


def new_challenge(next_path: str) -> Challenge:
    state, nonce, verifier = (secrets.token_urlsafe(_TOKEN_BYTES) for _ in range(3))
    return Challenge(state, nonce, verifier + secrets.token_urlsafe(_TOKEN_BYTES), next_path)


def read_challenge(cookie: str, state: str) -> Challenge:
    try:
        challenge = msgspec.json.decode(base64.urlsafe_b64decode(cookie), type=Challenge)
    except (ValueError, msgspec.DecodeError):
        raise SignInRefused(
            why="this browser did not start it, or started it too long ago"
        ) from None
    if not secrets.compare_digest(challenge.state.encode(), state.encode()):
        raise SignInRefused(why="the provider answered another sign-in")
    return challenge


def group_keys(text: str) -> dict[str, str]:
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    if bad := [group for group, _, key in pairs if not group.strip() or not key.strip()]:
        why = f"{bad[0]!r} is not GROUP=KEY"
        raise InvalidInput(what="PENSTOCK_OIDC_GROUPS", why=why)
    return {group.strip(): key.strip() for group, _, key in pairs}


def person_of(claims: Mapping[str, Any], keys: Mapping[str, str], groups_claim: str) -> Person:
    named = claims.get("email") if claims.get("email_verified", True) else None
    name = str(named or claims.get("preferred_username") or claims["sub"])[:_NAME_CHARS_MAX]
    told = claims.get(groups_claim, [])
    groups = {str(group) for group in (told if isinstance(told, list) else [told])}
    for group, key in keys.items():
        if group in groups:
            return Person(name, key)
    raise SignInRefused(why=f"{name} is in no group of PENSTOCK_OIDC_GROUPS; ask your operator")


@dataclass(frozen=True)
class OpenIdProvider:
    settings: ConsoleSettings

    @classmethod
    def of(cls, settings: ConsoleSettings) -> "OpenIdProvider | None":
        """The provider that the settings name, if any. Raises ExtraMissing, InvalidInput."""
        if not settings.oidc_issuer:
            return None
        try:
            import jwt  # noqa: F401
        except ImportError as error:
            raise ExtraMissing(what="PENSTOCK_OIDC_ISSUER", extra="oidc") from error
        group_keys(settings.oidc_groups)
        HttpAddress.of(settings.oidc_issuer, "PENSTOCK_OIDC_ISSUER")
        return cls(settings)

    def authorization_url(self, challenge: Challenge, redirect_url: str) -> str:
        digest = hashlib.sha256(challenge.verifier.encode()).digest()
        fields = {
            "response_type": "code",
            "client_id": self.settings.oidc_client_id,
            "redirect_uri": redirect_url,
            "scope": "openid email profile",
            "state": challenge.state,
            "nonce": challenge.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        endpoint = self._document().authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(fields)}"

    def person(self, code: str, challenge: Challenge, redirect_url: str) -> Person:
        document = self._document()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "client_id": self.settings.oidc_client_id,
            "code_verifier": challenge.verifier,
        }
        if self.settings.oidc_client_secret_file:
            secret = Path(self.settings.oidc_client_secret_file).read_text(encoding="utf-8")
            fields["client_secret"] = secret.strip()
        answer = _asked(document.token_endpoint, urlencode(fields).encode(), TokenAnswer)
        claims = self._claims(answer.id_token, document, challenge.nonce)
        keys = group_keys(self.settings.oidc_groups)
        return person_of(claims, keys, self.settings.oidc_groups_claim)

    def _claims(self, id_token: str, document: ProviderDocument, nonce: str) -> Mapping[str, Any]:
        import jwt

        known = _asked(document.jwks_uri, None, dict[str, Any])
        try:
            keys = jwt.PyJWKSet.from_dict(known)
            wanted = jwt.get_unverified_header(id_token).get("kid")
            fitting = [key for key in keys.keys if wanted in (None, key.key_id)]
            if not fitting:
                raise SignInRefused(why="its token is signed with an unknown key")
            claims: dict[str, Any] = jwt.decode(
                id_token,
                fitting[0],
                algorithms=_ALGORITHMS,
                audience=self.settings.oidc_client_id,
                issuer=document.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "sub", "aud", "iss"]},
            )
        except jwt.PyJWTError as error:
            raise SignInRefused(why=f"its token is invalid: {error}") from None
        if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise SignInRefused(why="its token belongs to another sign-in")
        return claims

    def _document(self) -> ProviderDocument:
        issuer = self.settings.oidc_issuer.rstrip("/")
        document = _asked(f"{issuer}/.well-known/openid-configuration", None, ProviderDocument)
        if document.issuer.rstrip("/") != issuer:
            raise ProviderUnusable(why=f"it calls itself {document.issuer[:200]!r}")
        return document


def _asked(url: str, form: bytes | None, kind: type[T]) -> T:
    """Call the provider, at any address: the operator chose it. Raises ProviderUnusable."""
    address = HttpAddress.of(url, "An address of the OpenID provider")
    client = HttpClient(address, seconds_max=_SECONDS_MAX, egress=None, bytes_max=_BYTES_MAX)
    headers = {"Accept": "application/json"}
    if form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        answer = client.request("GET" if form is None else "POST", headers, form).if_whole()
    finally:
        client.close()
    if answer.status != 200:
        why = answer.problem or f"it answered {answer.status}"
        raise ProviderUnusable(why=why)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise ProviderUnusable(why=f"its answer cannot be read: {error}") from None
