"""Spans and log records, as both encodings of OTLP give them."""

from typing import Any

from msgspec import Struct, field

Attributes = dict[str, Any]

#: More attributes than any exporter writes: a long conversation with one for each field has some
#: ten thousand.
ATTRIBUTES_MAX = 65_536
#: A larger span or record keeps others waiting while it is read. The longest conversations that
#: models take have a few MiB.
RECORD_BYTES_MAX = 8 * 1024 * 1024
DEPTH_MAX = 32

STATUS_ERROR = 2


class Origin(Struct):
    resource: Attributes = field(default_factory=dict)
    scope: str = ""


class SpanEvent(Struct):
    name: str = ""
    attributes: Attributes = field(default_factory=dict)


class Span(Struct):
    trace_id: str = ""
    span_id: str = ""
    parent_id: str = ""
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    attributes: Attributes = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    status_code: int = 0
    status_message: str = ""


class LogRecord(Struct):
    """A record that belongs to no span has empty ids."""

    time_ns: int = 0
    observed_ns: int = 0
    body: Any = None
    attributes: Attributes = field(default_factory=dict)
    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""

    @property
    def name(self) -> str:
        """Of the event that the record tells of; empty where it is a line of a log. The attribute
        goes first: some libraries have the place in their sources in the field."""
        name = self.attributes.get("event.name")
        return name if isinstance(name, str) and name else self.event_name


class Malformed(Struct):
    why: str
