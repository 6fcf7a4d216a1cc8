"""Which addresses this process dials for others: who may name an address must not reach by it what
only this machine and its neighbours can."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Self

from penstock.errors import SettingInvalid
from penstock.http.errors import AddressForbidden

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class EgressPolicy:
    """Addresses of the internet, and the networks that the operator allows beside them."""

    allowed: tuple[_Network, ...] = ()

    @classmethod
    def of(cls, networks: str) -> Self:
        """Of the setting `egress_networks`. Raises SettingInvalid."""
        try:
            return cls(
                tuple(
                    ipaddress.ip_network(text.strip())
                    for text in networks.split(",")
                    if text.strip()
                )
            )
        except ValueError as error:
            raise SettingInvalid(
                name="egress_networks",
                origin="the settings",
                why=f"{error}; write 10.0.0.0/8, or several with commas",
            ) from None

    def permits(self, address: str) -> bool:
        """Whether this IP address may be dialled; one that carries another is judged by that."""
        ip = _carried(ipaddress.ip_address(address.partition("%")[0]))
        global_host = ip.is_global and not ip.is_multicast
        return global_host or any(ip in network for network in self.allowed)

    def connect(
        self,
        address: tuple[str, int],
        timeout: float | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> socket.socket:
        """As `socket.create_connection`. What the name stands for is looked up once, and just that
        is dialled, so that no later answer can be another. Raises OSError, AddressForbidden."""
        host, port = address
        failure: OSError | None = None
        forbidden = None
        for _, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            ip = str(place[0])
            if not self.permits(ip):
                forbidden = ip
                continue
            try:
                return socket.create_connection((ip, port), timeout, source_address)
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure
        raise AddressForbidden(host=host, address=forbidden)


def _carried(ip: _Address) -> _Address:
    """The IPv4 address that an IPv6 address stands for, by any of the standard ways."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return ip.ipv4_mapped
        if ip.sixtofour is not None:
            return ip.sixtofour
        if ip in _TRANSLATED:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip


#: NAT64.
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
