"""Addresses that a program in a room may reach, under the names that they have outside.

In the room each name is an address of the loopback, and somebody listens there on the same port:
what a program dials stays as it is, certificates included.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.http.address import HttpAddress
from penstock.settings import without_secrets

_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")
#: Names get 127.1.0.1 and so on.
_NAMES_MAX = 250


@dataclass(frozen=True)
class Forward:
    #: Where somebody listens in the room.
    listen: str
    #: What it leads to.
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Forwards:
    all: tuple[Forward, ...]
    #: Lines of /etc/hosts.
    names: dict[str, str]
    #: What the loopback has to have besides its own.
    extra: tuple[str, ...]


def address_of(url: str) -> str:
    """HOST:PORT of a serving address. Raises InvalidInput."""
    found = HttpAddress.of(url, f"The serving address {without_secrets(url)!r}")
    return join(found.host, found.port)


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(address: str) -> tuple[str, int]:
    """Host and port. Raises InvalidInput."""
    host, _, digits = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    port = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if not 0 < port < 65536 or not (_is_number(host) or _NAME.fullmatch(host)):
        why = "it has to be HOST:PORT, such as packages.example:443"
        raise InvalidInput(what=f"The address {address!r}", why=why)
    return host, port


def plan(addresses: Iterable[str]) -> Forwards:
    """Raises InvalidInput."""
    forwards: dict[tuple[str, int], Forward] = {}
    names: dict[str, str] = {}
    extra: list[str] = []
    for address in addresses:
        host, port = split(address)
        listen = _listen(host, names)
        if _needs_place(listen) and listen not in extra:
            extra.append(listen)
        forwards[listen, port] = Forward(listen, host, port)
    return Forwards(tuple(forwards.values()), names, tuple(extra))


def _listen(host: str, names: dict[str, str]) -> str:
    if host == "localhost":
        return "127.0.0.1"
    if not _is_number(host):
        if len(names) >= _NAMES_MAX:
            raise InvalidInput(what="The list of addresses", why=f"it has over {_NAMES_MAX} names")
        return names.setdefault(host, f"127.1.0.{len(names) + 1}")
    if ":" in host and host != "::1":
        why = "in a room only ::1 of version 6 can be reached; use a name or version 4"
        raise InvalidInput(what=f"The address {host}", why=why)
    return host


def _needs_place(listen: str) -> bool:
    number = ipaddress.ip_address(listen)
    return not (number.is_loopback or number.is_unspecified)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
