"""The address of an HTTP server, taken apart so that it can be dialled."""

import base64
import http.client
import ipaddress
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import urlsplit

from penstock.backends.http.egress import EgressPolicy
from penstock.core.errors import InvalidInput

_CHARS_MAX = 4_000
_PORTS = {"http": 80, "https": 443}
#: One customer of a provider commonly has this network.
_IPV6_PREFIX_BITS = 64
_UNLIKE = "it is not http://HOST:PORT or https://HOST:PORT, with or without a path"


@dataclass(frozen=True)
class HttpAddress:
    #: As it was given, with any secrets in it.
    text: str = field(repr=False)
    secure: bool
    host: str
    port: int
    path: str
    query: str = field(repr=False)
    fragment: str
    #: NAME:PASSWORD, as it stands in front of the host.
    login: str | None = field(repr=False)

    @classmethod
    def of(cls, text: str, what: str) -> Self:
        """`what` names the address in errors, which do not show it for its secrets. Raises
        InvalidInput."""
        if len(text) > _CHARS_MAX or not text.isascii() or not text.isprintable() or " " in text:
            why = f"an address is at most {_CHARS_MAX} printable ASCII characters, none a blank"
            raise InvalidInput(what=what, why=why)
        try:
            parts = urlsplit(text)
            port = parts.port if parts.port is not None else _PORTS.get(parts.scheme)
        except ValueError as error:  # brackets without an end, a port that is no number
            raise InvalidInput(what=what, why=_UNLIKE) from error
        if parts.scheme not in _PORTS or not parts.hostname or not port:
            raise InvalidInput(what=what, why=_UNLIKE)
        login, at, _ = parts.netloc.rpartition("@")
        return cls(
            text=text,
            secure=parts.scheme == "https",
            host=parts.hostname,
            port=port,
            path=parts.path,
            query=parts.query,
            fragment=parts.fragment,
            login=login if at else None,
        )

    @property
    def target(self) -> str:
        """The path of a request, with its query."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    def below(self, path: str) -> Self:
        return replace(self, path=f"{self.path.rstrip('/')}/{path}")

    @property
    def authorization(self) -> str | None:
        """The value of the header for the login."""
        if self.login is None:
            return None
        return f"Basic {base64.b64encode(self.login.encode()).decode()}"

    def connection(
        self, seconds_max: float, egress: EgressPolicy | None
    ) -> http.client.HTTPConnection:
        """A connection that is not opened yet; the policy dials."""
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=seconds_max)
        if egress is not None:
            # TLS is spoken above it, with the name that is in the address.
            setattr(connection, "_create_connection", egress.connect)  # noqa: B010  # not in its type
        return connection


def is_loopback(url: str) -> bool:
    """Whether no network lies before it. Raises InvalidInput."""
    host = HttpAddress.of(url, "The address").host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_group(address: str) -> str:
    """Whom an address is counted for: its network in IPv6. What is no address is one group."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX_BITS), strict=False))
