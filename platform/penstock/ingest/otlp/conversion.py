"""Conversion of a batch of spans, records or metrics to event lines: which dialect reads each."""

import itertools
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field
from xxhash import xxh3_128_hexdigest

from penstock.ingest.otlp import claude_code, genai, metrics, tracers
from penstock.ingest.otlp.events import (
    Event,
    ModelCallReading,
    Moment,
    Owner,
    Reading,
    StepReading,
    ToolReading,
    events_of,
    owner_of,
    session_of,
    start_of,
    user_message,
)
from penstock.ingest.otlp.log_batch import (
    TRACE,
    WAITING_CHARS_MAX,
    WAITING_MAX,
    LogBatch,
    LogReading,
    SessionNotes,
)
from penstock.ingest.otlp.records import (
    STATUS_ERROR,
    Attributes,
    DataPoint,
    LogRecord,
    Malformed,
    Metric,
    Origin,
    Span,
    chars_in,
    count,
    microseconds,
    text,
)

#: The first dialect that recognizes a span reads it.
_OF_SPANS: tuple[Callable[[Span, Origin], Reading | None], ...] = (
    claude_code.read_span,
    tracers.read_openinference,
    tracers.read_vercel,
    tracers.read_langfuse,
    tracers.read_mlflow,
    tracers.read_langsmith,
    genai.read_span,
    tracers.read_traceloop,
)
_ERROR_CHARS_MAX = 10_000
TOO_DEEP = "it is nested too deep"
#: Names are repeated in each event, so they must be short.
_NAME_CHARS_MAX = 200


class Converted(Struct):
    """The result for a span, record or data point of a batch. `is_known` is false if it is not from
    an agent; `why` says that it is broken. `name` is of a metric."""

    place: int
    events: list[Event]
    is_known: bool = True
    why: str | None = None
    name: str = ""


class TelemetryBatch:
    """Converts one request to events, each once."""

    def __init__(
        self, received_us: int, tenant: str = "", notes: SessionNotes | None = None
    ) -> None:
        self._received_us = received_us
        self._tenant = tenant
        self._notes = notes or SessionNotes()
        self._started: set[tuple[str, str]] = set()

    def spans(self, spans: Iterable[tuple[Origin, Span | Malformed]]) -> Iterator[Converted]:
        waiting: list[tuple[int, Span, Origin]] = []
        chars = 0
        for place, (origin, span) in enumerate(spans, 1):
            if isinstance(span, Malformed):
                yield Converted(place, [], why=span.why)
            elif not self._waits(span, origin):
                yield _checked(place, self._of_span, place, span, origin)
            else:  # for the root of its trace, which ends last
                waiting.append((place, span, origin))
                chars += chars_in(span.attributes)
                if len(waiting) > WAITING_MAX or chars > WAITING_CHARS_MAX:
                    yield from self._of_waiting(waiting)
                    waiting, chars = [], 0
        yield from self._of_waiting(waiting)

    def _waits(self, span: Span, origin: Origin) -> bool:
        if not span.parent_id.strip("0") or session_of(span.attributes, origin) is not None:
            return False
        return not self._notes.tells(self._tenant, span.trace_id, TRACE)

    def _of_waiting(self, waiting: Iterable[tuple[int, Span, Origin]]) -> Iterator[Converted]:
        for place, span, origin in waiting:
            yield _checked(place, self._of_span, place, span, origin)

    def logs(self, records: Iterable[tuple[Origin, LogRecord | Malformed]]) -> Iterator[Converted]:
        batch = LogBatch(self._tenant, self._notes)
        chunked = ChunkedRecords()
        for place, (origin, record) in enumerate(records, 1):
            if isinstance(record, Malformed):
                yield Converted(place, [], why=record.why)
            elif (whole := chunked.take(place, record, origin)) is None:
                yield Converted(place, [])
            else:
                yield from self._of_whole(batch, place, whole, origin)
        for place, record, origin in chunked.rest():
            yield from self._of_whole(batch, place, record, origin)
        for reading in batch.rest():
            yield _checked(reading.place, self._of_record, reading)

    def _of_whole(
        self, batch: LogBatch, place: int, record: LogRecord, origin: Origin
    ) -> Iterator[Converted]:
        try:
            readings = batch.take(place, record, origin)
        except RecursionError:
            yield Converted(place, [], why=TOO_DEEP)
            return
        if readings is None:
            yield Converted(place, [], is_known=False)
        for reading in readings or []:
            yield _checked(reading.place, self._of_record, reading)

    def metrics(self, told: Iterable[tuple[Origin, Metric | Malformed]]) -> Iterator[Converted]:
        places = itertools.count(1)
        for origin, metric in told:
            if isinstance(metric, Malformed):
                yield Converted(next(places), [], why=metric.why)
                continue
            is_known = metrics.is_known(metric)
            for point in metric.points:
                events = list(self._of_point(metric, point, origin)) if is_known else []
                yield Converted(next(places), events, is_known, name=metric.name)

    def _of_point(self, metric: Metric, point: DataPoint, origin: Origin) -> Iterator[Event]:
        reading = metrics.read_point(metric, point)
        if reading is None:
            return
        at = microseconds(point.time_ns) or self._received_us
        session = session_of(point.attributes, origin) or metrics.nameless_session(origin)
        owner = owner_of(point.attributes, origin, session)
        yield from self._start(owner, at)
        yield from events_of(reading, owner, Moment("", at, at, otel=_otel("", "", origin)))

    def _of_span(self, place: int, span: Span, origin: Origin) -> Converted:
        join_span(span)
        reading = _reading_of_span(span, origin)
        session = session_of(span.attributes, origin)
        links = [] if session is None else self._links(span, origin, session)
        if reading is None:
            return Converted(place, links, is_known=bool(links))
        if not span.trace_id.strip("0") or not span.span_id.strip("0"):
            why = f"the span {span.name[:100]!r} has no trace id or no span id"
            return Converted(place, [], why=why)
        session = session or self._notes.session_of(self._tenant, span.trace_id)
        owner = owner_of(span.attributes, origin, session)
        _note_failure(span, reading)
        began, ended = self._times(span)
        otel = _otel(span.trace_id, span.span_id, origin) | {"name": span.name[:_NAME_CHARS_MAX]}
        if span.parent_id:
            otel["parent_id"] = span.parent_id
        moment = Moment(_span_key(span, reading), began, ended, span.trace_id, otel)
        events = [*links, *self._start(owner, began), *events_of(reading, owner, moment)]
        prompt = claude_code.span_prompt(span)
        if prompt is not None:
            events.append(user_message(owner, prompt, began, f"prompt:{moment.key}"))
        events += self._evaluations(span, reading, owner, moment)
        if isinstance(reading, ToolReading) and claude_code.is_own(span):
            self._notes.note(self._tenant, owner.session_id, claude_code.RESULTS)
        return Converted(place, events)

    def _evaluations(
        self, span: Span, reading: Reading, owner: Owner, moment: Moment
    ) -> Iterator[Event]:
        call = reading.facts.get("call_id") if isinstance(reading, ModelCallReading) else None
        for at, event in enumerate(span.events):
            if event.name == genai.EVALUATION:
                told = genai.read_evaluation(event.attributes, call or moment.key)
                told.key = f"{moment.key}:evaluation:{at}"
                yield from events_of(told, owner, moment)

    def _times(self, span: Span) -> tuple[int, int]:
        began = microseconds(span.start_ns) or microseconds(span.end_ns) or self._received_us
        return began, max(microseconds(span.end_ns) or began, began)

    def _links(self, span: Span, origin: Origin, session: str) -> list[Event]:
        """Link what came of a trace before its root, under the trace's id, to its session."""
        trace = span.trace_id
        if span.parent_id.strip("0") or not trace.strip("0"):
            return []
        if not self._notes.note_root(self._tenant, trace, session):
            return []
        link = {"parent_session": session, "link": "compaction"}
        return [start_of(owner_of(span.attributes, origin, trace), self._times(span)[1], **link)]

    def _of_record(self, known: LogReading) -> Converted:
        record, owner, reading = known.record, known.owner, known.told.reading
        if reading is None:  # another record of the batch reports it
            return Converted(known.place, [])
        at = microseconds(record.time_ns) or microseconds(record.observed_ns) or self._received_us
        otel = _otel(record.trace_id, record.span_id, known.origin)
        key = known.told.key or _record_key(record)
        moment = Moment(key, at, at, record.trace_id, otel)
        events = [*self._start(owner, at), *events_of(reading, owner, moment)]
        return Converted(known.place, events)

    def _start(self, owner: Owner, ts_us: int) -> Iterator[Event]:
        """Report a session's facts once per batch; the lake removes duplicates between batches."""
        if owner.start:
            start = start_of(owner, ts_us)
            name = owner.session_id, start["event_id"]
            if name not in self._started:
                self._started.add(name)
                yield start


def _checked(place: int, convert: Callable[..., Converted], *what: object) -> Converted:
    try:
        return convert(*what)
    except RecursionError:
        return Converted(place, [], why=TOO_DEEP)


def _reading_of_span(span: Span, origin: Origin) -> Reading | None:
    readings = (read(span, origin) for read in _OF_SPANS)
    return next((reading for reading in readings if reading is not None), None)


def _span_key(span: Span, reading: Reading) -> str:
    if isinstance(reading, ModelCallReading) and (key := claude_code.span_key(span)):
        return key
    key = f"{span.trace_id}:{span.span_id}"
    return f"{key}:span" if isinstance(reading, StepReading) and reading.kind == "llm" else key


def _otel(trace_id: str, span_id: str, origin: Origin) -> dict[str, str]:
    origins = {"trace_id": trace_id, "span_id": span_id, "scope": origin.scope[:_NAME_CHARS_MAX]}
    return {name: value for name, value in origins.items() if value}


def _note_failure(span: Span, reading: Reading) -> None:
    if not isinstance(reading, ModelCallReading | ToolReading | StepReading):
        return
    if reading.error is None and span.status_code == STATUS_ERROR:
        reading.error = span.status_message or _exception(span) or "the span failed"
    if isinstance(reading.error, str):
        reading.error = reading.error[:_ERROR_CHARS_MAX]


def _exception(span: Span) -> str | None:
    for event in span.events:
        if event.name == "exception":
            message = event.attributes.get("exception.message")
            kind = event.attributes.get("exception.type")
            return ": ".join(str(each) for each in (kind, message) if each)
    return text(span.attributes, "error.type")


def _record_key(record: LogRecord) -> str:
    attributes = sorted(record.attributes.items(), key=lambda pair: pair[0])
    content = repr((record.time_ns, record.name, record.body, attributes))
    return f"log:{xxh3_128_hexdigest(content.encode('utf-8', 'replace'))}"


# Values sent in parts: in events of a span, or in records of one batch

_PART_NAMES = ("chunkContextId", "chunkKey", "chunkIndex", "totalChunks", "chunk")
#: The name of the value in records with text in parts.
_BODY = "body"
#: A record, its number in the batch, and its origin.
_Placed = tuple[int, LogRecord, Origin]


class Parts(Struct):
    key: str
    total: int
    by_place: dict[int, str] = field(default_factory=dict)

    def add(self, held: Attributes) -> None:
        place = count(held, "chunkIndex")
        self.by_place[len(self.by_place) if place is None else place] = text(held, "chunk") or ""

    def joined(self) -> str:
        return "".join(self.by_place[place] for place in sorted(self.by_place))


def parts_of(held: Attributes) -> Parts | None:
    """The parts of a value in these attributes; empty without any."""
    key, total = text(held, "chunkKey"), count(held, "totalChunks")
    return Parts(key, total) if key and total and text(held, "chunk") is not None else None


def join_span(span: Span) -> None:
    """Join values that the span's events hold in parts."""
    by_key: dict[str, Parts] = {}
    for event in span.events:
        begun = parts_of(event.attributes)
        if begun is not None:
            by_key.setdefault(begun.key, begun).add(event.attributes)
    for parts in by_key.values():
        span.attributes[parts.key] = parts.joined()


class ChunkedRecords:
    """Records of one batch that were sent in parts."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], tuple[Parts, _Placed]] = {}

    def take(self, place: int, record: LogRecord, origin: Origin) -> LogRecord | None:
        """Take a record; returns it, or the first part of a value that is now complete."""
        begun = parts_of(record.attributes)
        if begun is None:
            return record
        name = text(record.attributes, "chunkContextId") or record.span_id, begun.key
        parts, first = self._waiting.setdefault(name, (begun, (place, record, origin)))
        parts.add(record.attributes)
        if len(parts.by_place) < parts.total:
            return None
        del self._waiting[name]
        return _whole(first[1], parts)

    def rest(self) -> Iterator[_Placed]:
        for parts, (place, record, origin) in self._waiting.values():
            yield place, _whole(record, parts), origin


def _whole(record: LogRecord, parts: Parts) -> LogRecord:
    for name in _PART_NAMES:
        record.attributes.pop(name, None)
    record.attributes[parts.key] = parts.joined()
    if parts.key == _BODY and record.body is None:
        record.body = parts.joined()
    return record
