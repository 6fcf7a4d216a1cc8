"""The event log at scale, a topic of Apache Kafka: its address, and the values in its records.

Records without the gateway's mark come from other producers: events as JSON, with the tenant in a
header. Nothing here needs Kafka's client."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.core.errors import SettingInvalid
from penstock.events.event import SCHEMA_VERSION, TENANT_DEFAULT
from penstock.events.frames import encode_unjudged

# A lost connection raises an error of ours.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

#: Room around a value in a record, headers included.
RECORD_BYTES = 1024
#: The header of records of the gateway.
MARK: tuple[str, bytes] = ("penstock-value", b"1")
#: Headers of records of other producers. Without them: version 1 and the default tenant.
SCHEMA_HEADER = "penstock-schema-version"
TENANT_HEADER = "penstock-tenant"

#: The options of an address, by the names of Kafka's own clients, with allowed values.
_OPTIONS = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"),
    "ssl_cafile": (),
    "ssl_certfile": (),
    "ssl_keyfile": (),
}


@dataclass(frozen=True)
class TopicAddress:
    """An address such as `kafka://host:9092,other:9092/topic`. `client` is passed to all
    clients."""

    servers: list[str]
    topic: str
    client: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"kafka://{','.join(self.servers)}/{self.topic}"


def parse_address(url: str) -> TopicAddress:
    """Parse the setting `log_url`. Raises SettingInvalid."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    servers = [host for host in hosts.split(",") if host]
    topic = unquote(parts.path.removeprefix("/"))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    faults = [] if servers and topic and "/" not in topic else ["it is not kafka://HOST:PORT/TOPIC"]
    for name, value in options.items():
        if name not in _OPTIONS:
            faults.append(f"{name} is none of {', '.join(_OPTIONS)}")
        elif _OPTIONS[name] and value not in _OPTIONS[name]:
            faults.append(f"{name} is one of {', '.join(_OPTIONS[name])}")
    if faults:
        raise SettingInvalid(name="log_url", origin="the settings", why=faults[0])
    if login:
        user, _, password = login.partition(":")
        options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"} | options
        options["sasl_plain_username"] = unquote(user)
        options["sasl_plain_password"] = unquote(password)
    return TopicAddress(servers, topic, {"bootstrap_servers": servers, **options})


def value_of(value: bytes | None, headers: Sequence[tuple[str, bytes]], timestamp_ms: int) -> bytes:
    """Read the value of the log from a record. It arrived at the time of the record."""
    if MARK in headers:
        return value or b""
    by_name = dict(headers)  # only ours are decoded: any other may be null
    tenant = by_name.get(TENANT_HEADER, TENANT_DEFAULT.encode()).decode(errors="replace")
    version = by_name.get(SCHEMA_HEADER, b"%d" % SCHEMA_VERSION).decode(errors="replace").strip()
    is_number = version.isdecimal() and len(version) < 10
    schema_version = int(version) if is_number else 2**31 - 1  # no Penstock knows that
    return encode_unjudged(value or b"", tenant, max(0, timestamp_ms) * 1000, schema_version)
