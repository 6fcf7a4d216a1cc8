"""`kafka://host:9092,other:9092/topic`, and what else a client must know to get there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import SettingInvalid
from penstock.events.event import SCHEMA_VERSION, TENANT_DEFAULT
from penstock.events.frames import encode_unjudged

#: What may stand behind the question mark, as Kafka's own clients name it.
_PARAMETERS = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"),
    "ssl_cafile": (),
    "ssl_certfile": (),
    "ssl_keyfile": (),
}


@dataclass(frozen=True)
class Address:
    """Where the topic is. `client` goes to every client that is made; it holds the password."""

    servers: list[str]
    topic: str
    client: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"kafka://{','.join(self.servers)}/{self.topic}"


def parse_address(url: str) -> Address:
    """Raises SettingInvalid."""
    address = urlsplit(url)
    login, _, hosts = address.netloc.rpartition("@")
    servers = [host for host in hosts.split(",") if host]
    topic = unquote(address.path.removeprefix("/"))
    if not servers or not topic or "/" in topic:
        raise _invalid("it is not kafka://HOST:PORT/TOPIC")
    given = dict(parse_qsl(address.query, keep_blank_values=True))
    for name, value in given.items():
        _check(name, value)
    return Address(servers, topic, {"bootstrap_servers": servers, **given, **_login(login, given)})


def _check(name: str, value: str) -> None:
    if name not in _PARAMETERS:
        raise _invalid(f"{name} is none of {', '.join(_PARAMETERS)}")
    allowed = _PARAMETERS[name]
    if allowed and value not in allowed:
        raise _invalid(f"{name} is one of {', '.join(allowed)}")


def _login(login: str, given: dict[str, str]) -> dict[str, str]:
    if not login:
        return {}
    user, _, password = login.partition(":")
    defaults = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"} | given
    return {
        "sasl_plain_username": unquote(user),
        "sasl_plain_password": unquote(password),
        "security_protocol": defaults["security_protocol"],
        "sasl_mechanism": defaults["sasl_mechanism"],
    }


def _invalid(why: str) -> SettingInvalid:
    return SettingInvalid(name="log_url", origin="the settings", why=why)


Headers = Sequence[tuple[str, bytes]]

#: On records of the gateway.
MARK: tuple[str, bytes] = ("penstock-value", b"1")
#: On records of other producers; without them version 1 and the default tenant are meant.
SCHEMA_HEADER = "penstock-schema-version"
TENANT_HEADER = "penstock-tenant"

#: A version that is no number: surely none that is known here.
_NO_VERSION = 2**31 - 1


def value_of(value: bytes | None, headers: Headers, timestamp_ms: int) -> bytes:
    """The value of the log that a record is. Its own time is the time of arrival: the same each
    time that the record is read."""
    if MARK in headers:
        return value or b""
    named = dict(headers)
    tenant = named.get(TENANT_HEADER, TENANT_DEFAULT.encode()).decode(errors="replace")
    version = _version(named.get(SCHEMA_HEADER, b"%d" % SCHEMA_VERSION))
    return encode_unjudged(value or b"", tenant, max(0, timestamp_ms) * 1000, version)


def _version(header: bytes) -> int:
    """Refused later, with its reason, when it is not known."""
    text = header.decode(errors="replace").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else _NO_VERSION
