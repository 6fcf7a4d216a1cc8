"""The link that `penstock serve` shows whoever started it: it signs one browser in, once."""

import hashlib
import secrets
import threading

from penstock.access.keys import list_keys
from penstock.clock import SECOND_US, Clock
from penstock.console.errors import SignInLinkUsed
from penstock.database.engine import Database
from penstock.events.event import TENANT_DEFAULT

#: Time enough to click it; what is left in a terminal's history is then worth nothing.
_LINK_SECONDS = 600


class SignInLinks:
    """Those of one process, each for a key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By hash: the id of the key, and until when.
        self._links: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def make(self, key: str) -> str:
        """A path whose fragment no server is sent, and so no log has."""
        token = secrets.token_urlsafe(32)
        until = self._clock.now_us() + _LINK_SECONDS * SECOND_US
        with self._lock:
            self._links[_digest(token)] = (key, until)
        return f"/sign-in#{token}"

    def use(self, token: str) -> str:
        """The id of its key. Raises SignInLinkUsed."""
        with self._lock:
            key, until = self._links.pop(_digest(token), ("", 0))
        if self._clock.now_us() >= until:
            raise SignInLinkUsed
        return key


def operator_key(database: Database, now_us: int) -> str | None:
    """The id of the oldest admin key of the default tenant that holds: whoever starts the service
    may do all that it may."""
    for key in list_keys(database, TENANT_DEFAULT):
        holds = key.revoked_at is None and (key.expires_at is None or key.expires_at > now_us)
        if key.role == "admin" and holds:
            return key.id
    return None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
