"""Addresses of HTTP servers, and the policy on which of them this process dials for others."""

import base64
import ipaddress
import socket
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import msgspec

from penstock.backends.http import AddressForbidden
from penstock.core.errors import InvalidInput, SettingInvalid
from penstock.core.settings import RoomSettings, Settings, setting

if TYPE_CHECKING:
    from http.client import HTTPConnection

# Which addresses are dialled


@dataclass(frozen=True, kw_only=True)
class HttpSettings(RoomSettings):
    egress_networks: str = setting(
        "",
        "networks off the internet whose addresses tenants may have dialled, with commas",
        "Set it, as 10.1.2.0/24, when webhooks of tenants are in a network of your own.",
    )


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Tried of one name.
_ADDRESSES_MAX = 4

#: Where clouds hand out the keys of a machine: a network around one is allowed for other reasons.
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.170.23"),
            *("168.63.129.16", "100.100.100.200", "192.0.0.192"),
            *("fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23", "fd20:ce::254"),
        ),
    )
)
#: All addresses of IPv6 on the internet are in it.
_UNICAST = ipaddress.IPv6Network("2000::/3")
#: Ranges for special use that some versions of `ipaddress` take for parts of the internet.
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
#: The last 32 bits are an address of IPv4: NAT64, and the oldest form.
_CARRIERS = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96")))


class EgressPolicy(msgspec.Struct, frozen=True):
    """Addresses of the internet, and the networks that the operator allows beside them."""

    allowed: tuple[_Network, ...] = ()
    #: Whether the operator named the address: it may then be on a private network or this machine.
    of_operator: bool = False

    @classmethod
    def of(cls, networks: str, *, of_operator: bool = False) -> Self:
        """Read the setting `egress_networks`. Raises SettingInvalid."""
        texts = [text.strip() for text in networks.split(",") if text.strip()]
        try:
            return cls(tuple(map(ipaddress.ip_network, texts)), of_operator)
        except ValueError as error:
            why = f"{error}; write 10.0.0.0/8, or several with commas"
            facts = {"name": "egress_networks", "origin": "the settings", "why": why}
            raise SettingInvalid(**facts) from None

    @classmethod
    def for_tenants(cls, settings: Settings) -> Self:
        """Make the policy for addresses that a tenant names. Raises SettingInvalid."""
        return cls.of(settings.room(HttpSettings).egress_networks)

    @classmethod
    def for_operator(cls, settings: Settings) -> Self:
        """Make the policy for addresses in the operator's settings and files. Raises
        SettingInvalid."""
        return cls.of(settings.room(HttpSettings).egress_networks, of_operator=True)

    def permits(self, address: str) -> bool:
        """Whether an IP address may be dialled; one that carries another is judged by that."""
        ip = _carried(ipaddress.ip_address(address.partition("%")[0]))
        if ip in _METADATA:
            return any(ip in network for network in self.allowed if network.num_addresses == 1)
        if any(ip in network for network in self.allowed):
            return True
        if self.of_operator:
            return not (ip.is_link_local or ip.is_multicast)
        unicast = ip.version == 4 or ip in _UNICAST
        special = ip.is_multicast or any(ip in network for network in _SPECIAL)
        return unicast and ip.is_global and not special

    def check_host(self, host: str) -> None:
        """Refuse an IP address in any of its forms, and `localhost`; other names wait until they
        are looked up. Raises AddressForbidden."""
        number = "127.0.0.1" if host == "localhost" else host
        try:
            places = socket.getaddrinfo(number, None, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return
        if not any(self.permits(str(place[0])) for *_, place in places):
            raise AddressForbidden(host=host)

    def connect(
        self,
        address: tuple[str, int],
        timeout: float | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> socket.socket:
        """Dial as `socket.create_connection` does; the name is looked up once, so that no later
        answer can be another. Raises OSError, AddressForbidden."""
        host, port = address
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if self.of_operator:
                raise OSError(f"{host} has no address: {error}") from error
            # Whether a name is known inside is nobody's business.
            raise AddressForbidden(host=host) from None
        ips = dict.fromkeys(str(place[0]) for *_, place in places)
        failure: OSError = TimeoutError("timed out")
        permitted = [ip for ip in ips if self.permits(ip)][:_ADDRESSES_MAX]
        for ip in permitted:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            try:
                return socket.create_connection((ip, port), left_s, source_address)
            except OSError as error:
                failure = error
        if permitted:
            raise failure
        raise AddressForbidden(host=host)


def _carried(ip: _Address) -> _Address:
    """The IPv4 address that an IPv6 address stands for, if any."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return ip.ipv4_mapped
        if ip.sixtofour is not None:
            return ip.sixtofour
        if int(ip) > 1 and any(ip in network for network in _CARRIERS):
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip


_CHARS_MAX = 4_000
_PORTS = {"http": 80, "https": 443}
#: The network that one customer of a provider commonly has.
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
        """Parse an address. `what` names it in errors, which do not show its secrets. Raises
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

    def connection(self, seconds_max: float, egress: EgressPolicy | None) -> "HTTPConnection":
        """Make a connection that is not opened yet; the policy dials."""
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self.secure else HTTPConnection
        connection = kind(self.host, self.port, timeout=seconds_max)
        if egress is not None:
            # TLS is spoken above it, with the name that is in the address.
            setattr(connection, "_create_connection", egress.connect)  # noqa: B010  # not in its type
        return connection


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_group(address: str) -> str:
    """Group addresses for counting: an IPv6 address by its network. All texts that are no address
    are one group."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX_BITS), strict=False))
