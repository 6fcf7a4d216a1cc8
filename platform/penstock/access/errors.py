"""The errors of keys and roles."""

from penstock.errors import PenstockError


class KeyRefused(PenstockError):
    """The request carries no key that is known here.
    Send `Authorization: Bearer <key>`; `penstock keys create` makes one."""

    http_status = 401

    @property
    def http_headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class RoleMissing(PenstockError):
    """The key is known, but this needs the role {role}."""

    http_status = 403
