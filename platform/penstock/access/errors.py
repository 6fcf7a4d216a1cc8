"""The errors of keys and roles."""

from typing import Any

from penstock.core.errors import PenstockError


class KeyRefused(PenstockError, http_status=401, http_headers={"WWW-Authenticate": "Bearer"}):
    """The request carries no key that is known here.
    Send `Authorization: Bearer <key>`; `penstock keys create` makes one."""


class KeyExpired(PenstockError, http_status=401, http_headers={"WWW-Authenticate": "Bearer"}):
    """The key {key} expired at {at}. Make another: penstock keys create."""


class TooManyBadKeys(PenstockError, http_status=429):
    """This address sent {failures} keys within a minute that are not known here. Nothing was looked
    at. Correct the key, and send again in {retry_after_s} s; `penstock keys list` shows which there
    are."""

    def __init__(self, *, failures: int, retry_after_s: int) -> None:
        super().__init__(failures=failures, retry_after_s=retry_after_s)
        self.http_headers = {"Retry-After": str(retry_after_s)}


class RoleMissing(PenstockError, http_status=403):
    """The key is known, but this needs the role {role}."""


class QuotaUsedUp(PenstockError, http_status=429):
    """The tenant's quota {quota} of {maximum} is used up {how_long}. Nothing of the request was
    accepted. An operator raises it with penstock quotas set."""

    def __init__(self, *, quota: str, maximum: int, until: str | None, retry_after_s: int) -> None:
        super().__init__(quota=quota, maximum=maximum, until=until, retry_after_s=retry_after_s)
        self.facts["how_long"] = f"until {until}" if until else "until some of it is removed"
        self.http_headers = {"Retry-After": str(retry_after_s)}

    @property
    def http_fields(self) -> dict[str, Any]:
        return {name: self.facts[name] for name in ("quota", "maximum", "until")}
