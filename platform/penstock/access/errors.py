"""The errors of keys and roles."""

from penstock.errors import PenstockError


class KeyRefused(PenstockError, http_status=401, http_headers={"WWW-Authenticate": "Bearer"}):
    """The request carries no key that is known here.
    Send `Authorization: Bearer <key>`; `penstock keys create` makes one."""


class RoleMissing(PenstockError, http_status=403):
    """The key is known, but this needs the role {role}."""
