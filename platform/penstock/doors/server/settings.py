"""The settings of the server."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.settings import RoomSettings, setting

#: `gateway` takes events in, `writer` takes them into the lake and does upkeep, `console` only
#: answers queries, as all of them do.
ServerRole = Literal["all", "gateway", "writer", "console"]


@dataclass(frozen=True, kw_only=True)
class ServerSettings(RoomSettings):
    """See docs/reference/settings.md."""

    host: str = setting(
        "127.0.0.1",
        "address that `penstock serve` listens on",
        "Set it to 0.0.0.0 in a container, behind something that speaks TLS.",
    )
    port: int = setting(
        8787,
        "port that `penstock serve` listens on; 0 takes a free one",
        "Change it where the port is taken.",
        minimum=0,
    )
    tls_certificate_file: str = setting(
        "",
        "certificate chain in PEM: `penstock serve` speaks HTTPS alone",
        "Set it where nothing in front speaks TLS; SIGHUP reads a renewed one.",
    )
    tls_key_file: str = setting(
        "", "private key of the certificate, in PEM", "Set it with the certificate."
    )
    trusted_proxies: str = setting(
        "",
        "addresses and networks of proxies, whose `X-Forwarded-For` says who a client is",
        "Set it to the balancer's: failed keys are then counted, and logged, by client.",
    )
    request_log: str = setting(
        "all",
        "requests with a line in the log: all, failures, none",
        "Set it to failures when the log grows too fast; probes that succeed have no line.",
        choices=("all", "failures", "none"),
    )
    connections_max: int = setting(
        4096,
        "connections at the same time",
        "Raise it, and the system's limit of open files, when more clients watch channels.",
        minimum=1,
    )
    address_connections_max: int = setting(
        1024,
        "the same for one address",
        "Raise it when all clients come through one balancer, lower it on the internet.",
        minimum=1,
        at_most="connections_max",
    )
