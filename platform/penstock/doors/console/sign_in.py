"""Signing in: browsers, proofs in forms, the link of `penstock serve`, and OpenID providers."""

import base64
import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, String, Table

from penstock.access.keys import Grant, list_keys
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed
from penstock.backends.database.engine import Database
from penstock.backends.database.tables import metadata
from penstock.backends.http.address import HttpAddress
from penstock.backends.http.client import HttpClient
from penstock.core.clock import SECOND_US, Clock
from penstock.core.errors import ExtraMissing, InvalidInput, PenstockError
from penstock.doors.settings import ConsoleSettings
from penstock.events.event import TENANT_DEFAULT

#: Signed-in browsers, each by a hash of its cookie.
console_session = Table(
    "console_session",
    metadata,
    Column("token_sha256", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("key_id", String(32), nullable=False),
    #: Who signed in through an OpenID provider, with the rights of that key.
    Column("person", String(200)),
    Column("created_at", BigInteger, nullable=False),
    Column("used_at", BigInteger, nullable=False),
)


class SignInNeeded(PenstockError, http_status=401):
    """You are not signed in, or your session has ended. Sign in at /sign-in with a key."""


class RequestForged(PenstockError, http_status=403):
    """The form was not sent from this console: {why}. Nothing was done. Reload the page and send
    the form again."""


class SignInLinkUsed(PenstockError, http_status=401):
    """This link was used before or has expired. Restart the service for a new one, or sign in with
    a key: penstock keys create."""


class ProviderUnusable(PenstockError, exit_status=3, http_status=502):
    """The OpenID provider cannot be used: {why}. Nobody was signed in. Try again, or sign in with a
    key; PENSTOCK_OIDC_ISSUER names the provider."""


class SignInRefused(PenstockError, http_status=403):
    """The sign-in through the OpenID provider is refused: {why}. Nobody was signed in."""


#: The field of each form that changes something.
FIELD = "form_proof"


def form_proof(cookie: str) -> str:
    """Make the proof that a form carries. Other sites know neither it nor the cookie."""
    return hashlib.sha256(b"form\0" + cookie.encode()).hexdigest()


def require_own_form(headers: Mapping[str, str], cookie: str | None, proof: str) -> None:
    """Refuse forms that another site sent. Raises RequestForged.

    Over plain HTTP browsers send no Sec-Fetch-Site. A page without referrer has Origin `null`."""
    if (site := headers.get("sec-fetch-site")) not in (None, "same-origin"):
        raise RequestForged(why=f"the browser reports a {site} page")
    origin = headers.get("origin")
    if origin not in (None, "null") and urlsplit(origin).netloc != headers.get("host"):
        raise RequestForged(why="the browser reports another address")
    if not cookie:
        raise RequestForged(why="the browser sent no cookie of this console")
    if not hmac.compare_digest(form_proof(cookie).encode(), proof.encode()):
        raise RequestForged(why="it belongs to another or an older session")


#: Short, since links stay in a terminal's history.
_LINK_SECONDS = 600


class SignInLinks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def make(self, key: str) -> str:
        """Make a path with the token as its fragment, which no request and no log holds."""
        token = secrets.token_urlsafe(32)
        until = self._clock.now_us() + _LINK_SECONDS * SECOND_US
        with self._lock:
            self._links[_digest(token)] = (key, until)
        return f"/sign-in#{token}"

    def use(self, token: str) -> str:
        with self._lock:
            key, until = self._links.pop(_digest(token), ("", 0))
        if self._clock.now_us() >= until:
            raise SignInLinkUsed
        return key


def operator_key(database: Database, now_us: int) -> str | None:
    """The id of the oldest valid admin key of the default tenant."""
    for key in list_keys(database, TENANT_DEFAULT):
        holds = key.revoked_at is None and (key.expires_at is None or key.expires_at > now_us)
        if key.role == "admin" and holds:
            return key.id
    return None


def _digest(token: str) -> str:
    # A plain hash is safe: the token is long and random.
    return hashlib.sha256(token.encode()).hexdigest()


#: A session ends after this time without a request: a working day.
IDLE_SECONDS_MAX = 8 * 3600
SESSION_SECONDS_MAX = 7 * 24 * 3600
_USE_NOTED_SECONDS = 60
_TOKEN_BYTES = 32


class BrowserSession(msgspec.Struct, frozen=True):
    tenant: str
    key_id: str
    created_at: int
    used_at: int
    person: str | None = None

    @property
    def actor(self) -> str:
        return actor_name(self.key_id, self.person)

    def is_over(self, now_us: int) -> bool:
        idle_us, age_us = now_us - self.used_at, now_us - self.created_at
        return idle_us >= IDLE_SECONDS_MAX * SECOND_US or age_us >= SESSION_SECONDS_MAX * SECOND_US


def actor_name(key_id: str, person: str | None) -> str:
    return f"{person} (key {key_id})" if person else f"key {key_id}"


class BrowserSessions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def open(self, grant: Grant, person: str | None = None) -> str:
        token, now_us = secrets.token_urlsafe(_TOKEN_BYTES), self._clock.now_us()
        row = {"token_sha256": _digest(token), "tenant": grant.tenant, "key_id": grant.key}
        row |= {"person": person} if person else {}
        over = now_us - SESSION_SECONDS_MAX * SECOND_US
        deed = Deed(grant.tenant, actor_name(grant.key, person), "sign_in")
        with self._database.write() as connection:
            old = sa.delete(console_session).where(console_session.c.created_at < over)
            connection.execute(old)
            connection.execute(
                sa.insert(console_session).values(**row, created_at=now_us, used_at=now_us)
            )
            append(connection, deed)
        return token

    def find(self, token: str, *, is_use: bool = True) -> BrowserSession | None:
        """Find a session that has not ended. Requests of a page's timer do not prolong it."""
        own, columns = console_session.c.token_sha256 == _digest(token), console_session.c
        named = (columns.tenant, columns.key_id, columns.created_at, columns.used_at)
        query = sa.select(*named, columns.person)
        with self._database.read() as connection:
            row = connection.execute(query.where(own)).first()
        if row is None:
            return None
        session, now_us = BrowserSession(*row), self._clock.now_us()
        if session.is_over(now_us):
            self._remove(token)
            return None
        if is_use and now_us - session.used_at >= _USE_NOTED_SECONDS * SECOND_US:
            with self._database.write() as connection:
                connection.execute(sa.update(console_session).where(own).values(used_at=now_us))
        return session

    def end(self, token: str, session: BrowserSession) -> None:
        self._remove(token, Deed(session.tenant, session.actor, "sign_out"))

    def _remove(self, token: str, *deeds: Deed) -> None:
        own = console_session.c.token_sha256 == _digest(token)
        with self._database.write() as connection:
            connection.execute(sa.delete(console_session).where(own))
            append(connection, *deeds)


# Signing in through an OpenID provider: the authorization code flow with PKCE. The members of a
# group have the rights of a key.

_SECONDS_MAX, _BYTES_MAX = 10.0, 1024 * 1024
_LEEWAY_SECONDS = 60
_CHALLENGE_BYTES = 24
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


class Person(msgspec.Struct, frozen=True):
    name: str
    key: str


def new_challenge(next_path: str) -> Challenge:
    state, nonce, verifier = (secrets.token_urlsafe(_CHALLENGE_BYTES) for _ in range(3))
    return Challenge(state, nonce, verifier + secrets.token_urlsafe(_CHALLENGE_BYTES), next_path)


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
    claimed = claims.get(groups_claim, [])
    groups = {str(group) for group in (claimed if isinstance(claimed, list) else [claimed])}
    for group, key in keys.items():
        if group in groups:
            return Person(name, key)
    raise SignInRefused(why=f"{name} is in no group of PENSTOCK_OIDC_GROUPS; ask your operator")


class OpenIdProvider(msgspec.Struct, frozen=True):
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
