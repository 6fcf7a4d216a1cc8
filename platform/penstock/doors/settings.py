"""The settings of the server and the console."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.settings import RoomSettings, setting

#: `gateway` takes events in, `writer` stores them in the lake and does upkeep. All answer queries;
#: `console` does nothing else.
ServerRole = Literal["all", "gateway", "writer", "console"]


@dataclass(frozen=True, kw_only=True)
class ServerSettings(RoomSettings):
    """See docs/reference/settings.md."""

    host: str = setting(
        "127.0.0.1",
        "address that `penstock serve` listens on",
        "Set it to 0.0.0.0 in a container, behind a proxy that speaks TLS.",
    )
    port: int = setting(
        8787,
        "port that `penstock serve` listens on; 0 takes a free one",
        "Change it if the port is taken.",
        minimum=0,
    )
    tls_certificate_file: str = setting(
        "",
        "certificate chain in PEM; with it `penstock serve` speaks only HTTPS",
        "Set it if no proxy in front speaks TLS. SIGHUP reads a renewed one.",
    )
    tls_key_file: str = setting(
        "", "private key of the certificate, in PEM", "Set it with the certificate."
    )
    trusted_proxies: str = setting(
        "",
        "addresses and networks of proxies whose `X-Forwarded-For` is trusted",
        "Set it to the balancer's address: failed keys are then counted and logged by client.",
    )
    request_log: str = setting(
        "all",
        "requests that are logged: all, failures, none; probes that succeed never are",
        "Set it to failures when the log grows too fast.",
        choices=("all", "failures", "none"),
    )
    connections_max: int = setting(
        4096,
        "open connections",
        "Raise it, and the system's limit of open files, when more clients watch channels.",
        minimum=1,
    )
    address_connections_max: int = setting(
        1024,
        "open connections of one address",
        "Raise it if all clients come through one balancer; lower it on the internet.",
        minimum=1,
        at_most="connections_max",
    )


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(RoomSettings):
    """See docs/reference/settings.md."""

    console_tokenizers: str = setting(
        "",
        "NAME=FILE pairs, separated by commas: the tokenizer.json of each tokenizer in model calls",
        "Set it to see the texts of tokens on session pages; needs penstock[tokenizers].",
    )
    console_figures_seconds: int = setting(
        60,
        "longest time that figures of the whole lake are fresh",
        "Raise it on a large lake with many readers; 0 adds them up at each visit.",
        minimum=0,
    )
    oidc_issuer: str = setting(
        "",
        "URL of the OpenID provider through which people sign in to the console",
        "Set it if people have accounts there; nobody then handles keys.",
        needs="oidc_client_id",
    )
    oidc_client_id: str = setting(
        "",
        "client id of this console at the provider",
        "Set it with the issuer.",
        needs="oidc_groups",
    )
    oidc_client_secret_file: str = setting(
        "",
        "file with the client secret",
        "Set it if the provider issued one; a public client has none.",
    )
    oidc_redirect_url: str = setting(
        "",
        "URL of this console's /sign-in/oidc, as browsers reach it",
        "Set it behind a balancer; by default it is made from the request's host.",
    )
    oidc_groups: str = setting(
        "",
        "GROUP=KEY_ID pairs, separated by commas: members have the rights of that key; the first "
        "match counts",
        "Set it with the issuer; revoking the key signs its members out.",
    )
    oidc_groups_claim: str = setting(
        "groups",
        "claim of the provider's token that lists a person's groups",
        "Change it if the provider uses another name, such as roles.",
    )
