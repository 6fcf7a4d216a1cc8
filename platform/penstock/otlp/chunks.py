"""Values that an exporter sent in parts, because what lies behind it takes no long ones: as events
of their span, or as log records of their own. Each part names the value, its place, and how many
there are."""

from collections.abc import Iterator

from msgspec import Struct, field

from penstock.otlp.attributes import count, text
from penstock.otlp.records import Attributes, LogRecord, Origin, Span

_CONTEXT = ("chunkContextId", "chunk.context_id", "chunk.id")
_KEY = ("chunkKey", "chunk.key")
_INDEX = ("chunkIndex", "chunk.index")
_TOTAL = ("totalChunks", "chunk.total", "chunk.count")
_CONTENT = ("chunk", "chunk.content")
_NAMES = {*_CONTEXT, *_KEY, *_INDEX, *_TOTAL, *_CONTENT}
#: A record whose text was sent in parts has it under this name.
_BODY = "body"
#: A record, its number in the batch, and who made it.
_Placed = tuple[int, LogRecord, Origin]


class Parts(Struct):
    """Of one value."""

    key: str
    total: int
    by_place: dict[int, str] = field(default_factory=dict)

    def add(self, held: Attributes) -> None:
        place = count(held, *_INDEX)
        self.by_place[len(self.by_place) if place is None else place] = text(held, *_CONTENT) or ""

    @property
    def is_whole(self) -> bool:
        return len(self.by_place) >= self.total

    def joined(self) -> str:
        return "".join(self.by_place[place] for place in sorted(self.by_place))


def parts_of(held: Attributes) -> Parts | None:
    """Empty, of the value that these attributes have a part of."""
    key, total = text(held, *_KEY), count(held, *_TOTAL)
    return Parts(key, total) if key and total and text(held, *_CONTENT) is not None else None


def join_span(span: Span) -> None:
    """Puts together what events of the span have in parts."""
    by_key: dict[str, Parts] = {}
    for event in span.events:
        begun = parts_of(event.attributes)
        if begun is not None:
            by_key.setdefault(begun.key, begun).add(event.attributes)
    for parts in by_key.values():
        span.attributes[parts.key] = parts.joined()


class ChunkedRecords:
    """Records of one batch that came in parts."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], tuple[Parts, _Placed]] = {}

    def take(self, place: int, record: LogRecord, origin: Origin) -> LogRecord | None:
        """The whole record once its last part is there; it is the first with the whole value."""
        begun = parts_of(record.attributes)
        if begun is None:
            return record
        name = text(record.attributes, *_CONTEXT) or record.span_id, begun.key
        parts, first = self._waiting.setdefault(name, (begun, (place, record, origin)))
        parts.add(record.attributes)
        if not parts.is_whole:
            return None
        del self._waiting[name]
        return _whole(first[1], parts)

    def rest(self) -> Iterator[_Placed]:
        """Those of which parts are missing, with what is there."""
        waiting, self._waiting = self._waiting, {}
        for parts, (place, record, origin) in waiting.values():
            yield place, _whole(record, parts), origin


def _whole(record: LogRecord, parts: Parts) -> LogRecord:
    kept = {name: value for name, value in record.attributes.items() if name not in _NAMES}
    record.attributes = kept | {parts.key: parts.joined()}
    if parts.key == _BODY and record.body is None:
        record.body = parts.joined()
    return record
