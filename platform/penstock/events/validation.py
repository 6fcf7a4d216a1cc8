"""Validation: which lines of a producer are events, and why the others are not.

`validate_line` defines it. For many lines at once a few calls into C prove that all are valid.
Where that fails, lines are validated one by one."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType

from penstock.events.bodies import ARRAY_WITHOUT_END
from penstock.events.event import (
    CUSTOM_PREFIX,
    FIELDS,
    PAYLOADS,
    READ_TOO,
    TS_MAX,
    TS_MAX_US,
    TS_MIN,
    TS_MIN_US,
    Envelope,
    EventFields,
    Id,
    Ts,
    microseconds,
)
from penstock.events.near_misses import UnknownKeys

#: JSON readers downstream recurse.
NESTING_MAX = 200
REASON_CHARS_MAX = 300


class Rejection(NamedTuple):
    """A rejected line. Lines count from 1, as in an editor."""

    line: int
    reason: str
    raw: bytes
    source: str | None


#: Looked at one by one before somebody else has a turn: a few milliseconds.
PART_LINES = 128


class ValidatedLines(NamedTuple):
    #: In the form that the log keeps.
    lines: list[bytes]
    sessions: list[str]
    sources: list[str | None]
    rejections: list[Rejection]
    #: Accepted events that may have keys which nothing reads.
    unknown: Sequence[UnknownKeys] = ()


class EventInvalid(ValueError):
    """A line is not an event. The text is for its producer."""


def validate_lines(lines: Sequence[bytes], first_line: int, event_bytes_max: int) -> ValidatedLines:
    """Validate consecutive lines. Blank ones are only counted."""
    exact = _exact_events(lines, event_bytes_max)
    return _validate(lines, exact, first_line, event_bytes_max)


def validate_parts(
    lines: Sequence[bytes], first_line: int, event_bytes_max: int
) -> Iterator[ValidatedLines]:
    """Validate in parts where lines are validated one by one, which takes longer."""
    exact = _exact_events(lines, event_bytes_max)
    step = PART_LINES if any(event is None for event in exact) else max(1, len(lines))
    for start in range(0, len(lines), step):
        part, events = lines[start : start + step], exact[start : start + step]
        yield _validate(part, events, first_line + start, event_bytes_max)


def validate_line(line: bytes, event_bytes_max: int) -> tuple[bytes, Envelope]:
    """Validate a line; returns it as the log keeps it, and its envelope. Raises EventInvalid."""
    in_log, envelope, _ = _judged(line, event_bytes_max)
    return in_log, envelope


def _judged(line: bytes, event_bytes_max: int) -> tuple[bytes, Envelope, dict[str, Any]]:
    if len(line) > event_bytes_max:
        raise EventInvalid(f"the event is over the limit of {event_bytes_max} bytes")
    value = _decode(line)
    if not isinstance(value, dict):
        raise EventInvalid("an event is a JSON object")
    if line.count(b"[") + line.count(b"{") > NESTING_MAX and _depth(value) > NESTING_MAX:
        raise EventInvalid(f"nested deeper than {NESTING_MAX} levels")
    _refuse_duplicate_keys(line, value)
    envelope = _convert(line, value)
    if unknown := value.keys() - FIELDS:
        raw_fields = _fields_decoder.decode(line)  # as they were sent: numbers keep their digits
        extra = {name: raw for name, raw in raw_fields.items() if name in unknown}
        envelope.extra = msgspec.Raw(_encoder.encode(extra))
        line = _encoder.encode(envelope)
    return line, envelope, value


# Many lines at once: events that hold known fields and nothing else
#
# Their structures are those of `event.py`, but for two things: they refuse unknown fields, and tell
# one that was left out from null. Where an event encoded again has fewer keys, a key stood twice.


def _exact_type(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _exact_structure(kind)
    if kind == Ts:
        return str | int  # not decoded: encoded again, a time may have another form
    if isinstance(kind, UnionType):
        return reduce(or_, map(_exact_type, get_args(kind)))
    if get_origin(kind) is list:
        return list[_exact_type(*get_args(kind))]  # type: ignore[misc]  # known when it runs
    return kind


def _exact_structure(structure: type[Struct], also: Iterable[str] = ()) -> type[Struct]:
    fields: list[Any] = [
        (field.name, _exact_type(field.type))
        if field.required
        else (field.name, _exact_type(field.type) | UnsetType, UNSET)
        for field in msgspec.structs.fields(structure)
    ]
    fields += [(name, Any, UNSET) for name in also]
    return msgspec.defstruct(
        f"Exact{structure.__name__}",
        fields,
        bases=(structure,),
        kw_only=True,
        gc=False,
        forbid_unknown_fields=True,
    )


_ExactFields = _exact_structure(EventFields)
_ExactEvent: Any = reduce(
    or_,
    (
        msgspec.defstruct(
            f"Exact{payload.__name__}Event",
            [("payload", _exact_structure(payload, READ_TOO))],
            bases=(_ExactFields,),
            tag_field="type",
            tag=name,
            kw_only=True,
            gc=False,
            forbid_unknown_fields=True,
        )
        for name, payload in PAYLOADS.items()
    ),
)
_exact_decoder = msgspec.json.Decoder(_ExactEvent)
_decoder = msgspec.json.Decoder()
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()

#: Escapes that could hide a NUL in an id, or a colon.
_HIDING_ESCAPES = re.compile(rb"\\u00(?:00|3[aA])")
#: After so many other lines, lines are only tried while most are such events.
_MISSES_MIN = 8


def _exact_events(lines: Sequence[bytes], event_bytes_max: int) -> list[Any]:
    """Decode each line that is certainly accepted as it is; None for the others."""
    none: list[Any] = [None] * len(lines)
    if max(map(len, lines), default=0) > event_bytes_max:
        return none
    events: list[Any] = []
    missed = 0
    for line in lines:
        try:
            events.append(_exact_decoder.decode(line))
        except (ValueError, RecursionError):
            events.append(None)
            missed += 1
            if missed >= _MISSES_MIN and 2 * missed > len(events):
                break
    events += none[len(events) :]
    exact = [event for event in events if event is not None] if missed else events
    if not exact:
        return none
    sent = [line for line, event in zip(lines, events, strict=True) if event is not None]
    chunk = b"\n".join(sent)
    try:
        stamps = msgspec.convert([event.ts for event in exact], list[Ts])
    except ValueError:
        return none
    certain = (
        not _HIDING_ESCAPES.search(chunk)
        and _nested_flat(chunk, sent)
        and _count(chunk, b":") == _count(_encoder.encode(exact), b":")
        and _timestamps_plausible(stamps)
    )
    return events if certain else none


def _count(data: bytes, mark: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(mark)))


def _nested_flat(chunk: bytes, lines: Sequence[bytes]) -> bool:
    """Whether no line has more opening brackets, even in texts, than may be nested."""
    folded = np.frombuffer(chunk, np.uint8) & 0xDF  # makes one mark of "{" and "["
    opens = folded == ord("[")
    if np.count_nonzero(opens) <= NESTING_MAX:
        return True
    ends = np.cumsum([len(line) + 1 for line in lines])
    by_line = np.searchsorted(np.flatnonzero(opens), ends)
    by_line[1:] -= by_line[:-1].copy()
    return int(by_line.max()) <= NESTING_MAX


def _timestamps_plausible(stamps: list[Any]) -> bool:
    try:
        return bool(min(stamps) >= TS_MIN and max(stamps) < TS_MAX)
    except TypeError:  # integers, or a mixture
        return all(TS_MIN_US <= microseconds(ts) < TS_MAX_US for ts in stamps)


# One line


def _validate(
    lines: Sequence[bytes], exact: Sequence[Any], first_line: int, event_bytes_max: int
) -> ValidatedLines:
    """Validate the lines that are not `exact` events."""
    validated = ValidatedLines([], [], [], [], unknown := list[UnknownKeys]())
    for number, (line, event) in enumerate(zip(lines, exact, strict=True), first_line):
        if event is None:
            if not line.strip():
                continue
            try:
                line, event, value = _judged(line, event_bytes_max)  # noqa: PLW2901
            except EventInvalid as error:
                reason = str(error)[:REASON_CHARS_MAX]
                validated.rejections.append(Rejection(number, reason, line, source_of(line)))
                continue
            unknown.append(UnknownKeys(number, value))
        validated.lines.append(line)
        validated.sessions.append(event.session_id)
        validated.sources.append(event.source or None)
    return validated


def _decode(line: bytes) -> Any:
    try:
        return _decoder.decode(line)
    except UnicodeDecodeError as error:
        why = f"not valid UTF-8: {error.reason} at byte {error.start} of a text"
        raise EventInvalid(why) from None
    except RecursionError:
        raise EventInvalid(f"nested deeper than {NESTING_MAX} levels") from None
    except msgspec.ValidationError as error:
        raise EventInvalid(f"not valid JSON: {error}") from None  # a number out of range
    except msgspec.DecodeError as error:
        if line == ARRAY_WITHOUT_END:
            raise EventInvalid("not valid JSON: the array has no end, and was cut") from None
        if b"\\ud" in line.lower() and _has_lone_surrogate(line):
            raise EventInvalid("not valid Unicode: a lone surrogate escape") from None
        why = str(error).removeprefix("JSON is malformed: ")
        raise EventInvalid(f"not valid JSON: {why}") from None


def _has_lone_surrogate(line: bytes) -> bool:
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [
        inner
        for outer in level
        for inner in (outer.values() if isinstance(outer, dict) else outer)
        if isinstance(inner, dict | list)
    ]:
        depth += 1
    return depth + 1


def _refuse_duplicate_keys(line: bytes, value: dict[str, Any]) -> None:
    """Refuse a key that stands twice: the decoder keeps one, and colons are missing."""
    same_colons = line.count(b":") == _encoder.encode(value).count(b":")
    if same_colons and b"\\u003a" not in line and b"\\u003A" not in line:
        return

    def refuse(pairs: list[tuple[str, Any]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise EventInvalid(f"the key {name[:64]!r} stands twice in one object")
            names.add(name)

    json.loads(line, object_pairs_hook=refuse, parse_int=str, parse_float=str)


_TS_FORMS = "it is RFC 3339 with a zone, or integer microseconds since 1970"
_envelope_decoder = msgspec.json.Decoder(Envelope)
_IDS = ("session_id", "type", "event_id", "source", "source_key", "checkpoint", "user", "project")


def _convert(line: bytes, value: dict[str, Any]) -> Envelope:
    name, payload = value.get("type"), value.get("payload")
    if not isinstance(name, str):
        raise EventInvalid("`type` is missing" if name is None else "`type` is not a text")
    if name not in PAYLOADS and not name.startswith(CUSTOM_PREFIX):
        known = f"known are {', '.join(PAYLOADS)}"
        raise EventInvalid(f"unknown type {name[:64]!r}; {known}; own types begin with x_")
    if not isinstance(payload, dict):
        missing = payload is None
        raise EventInvalid("`payload` is missing" if missing else "`payload` is not an object")
    try:
        if structure := PAYLOADS.get(name):
            msgspec.convert(payload, structure)
    except msgspec.ValidationError as error:
        why = str(error)  # its path begins at the payload
        at_payload = why.replace("`$", "`$.payload", 1)
        raise EventInvalid(at_payload if "`$" in why else f"{why} - at `$.payload`") from None
    try:
        envelope = _envelope_decoder.decode(line)
    except msgspec.ValidationError as error:
        why = str(error)
        hint = f"; {_TS_FORMS}" if why.endswith("`$.ts`") else ""
        raise EventInvalid(why + hint) from None
    envelope.extra = msgspec.UNSET
    for field in _IDS:
        if "\0" in (getattr(envelope, field) or ""):
            raise EventInvalid(f"`{field}` holds a NUL character")
    if not TS_MIN_US <= microseconds(envelope.ts) < TS_MAX_US:
        hint = "; integers are microseconds since 1970" if isinstance(envelope.ts, int) else ""
        raise EventInvalid(f"`ts` is not between the years 2000 and 2099{hint}")
    return envelope


class _Source(Struct):
    source: Id | None = None


_source_decoder = msgspec.json.Decoder(_Source)


def source_of(line: bytes) -> str | None:
    """Read the source that a rejected line names, for the ledger."""
    try:
        source = _source_decoder.decode(line).source
    except (ValueError, RecursionError):
        return None
    return source if source is None or "\0" not in source else None
