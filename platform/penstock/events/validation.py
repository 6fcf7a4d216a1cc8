"""Validation: which lines of a producer are events, and why the others are not.

`validate_line` defines what is accepted, and why the rest is not. `validate_lines` gives the
same answers for many lines at once: it proves whole chunks valid with a few calls into C, and
goes line by line only through chunks where that proof fails."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import compress
from operator import or_
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from penstock.events.bodies import ARRAY_WITHOUT_END
from penstock.events.event import (
    CUSTOM_PREFIX,
    FIELDS,
    PAYLOADS,
    TS_MAX,
    TS_MAX_US,
    TS_MIN,
    TS_MIN_US,
    Envelope,
    EventFields,
    Id,
    microseconds,
)
from penstock.events.exact_events import decode_exact, encode_again, stamps_of
from penstock.events.near_misses import UnknownKeys

#: Deeper than any real payload; JSON readers downstream recurse.
NESTING_MAX = 200
REASON_CHARS_MAX = 300


class Rejection(NamedTuple):
    """A rejected line; `line` counts from 1, as an editor does."""

    line: int
    reason: str
    raw: bytes
    source: str | None


#: Lines that are looked at one by one before somebody else has a turn: a few milliseconds.
PART_LINES = 128


class ValidatedLines(NamedTuple):
    """In the order of the lines."""

    #: Each one line of JSON, in the form that the log keeps.
    lines: list[bytes]
    sessions: list[str]
    sources: list[str | None]
    rejections: list[Rejection]
    #: Of the accepted lines, those that may have keys which nothing reads.
    unknown: Sequence[UnknownKeys] = ()


class EventInvalid(ValueError):
    """Why a line is not an event; the text is for the producer."""


def validate_lines(lines: Sequence[bytes], first_line: int, event_bytes_max: int) -> ValidatedLines:
    """Validate consecutive lines; blank ones are skipped but counted."""
    valid = _prove_all_valid(lines, first_line, event_bytes_max)
    return valid or _validate_each(lines, first_line, event_bytes_max)


def validate_parts(
    lines: Sequence[bytes], first_line: int, event_bytes_max: int
) -> Iterator[ValidatedLines]:
    """The same, a part at a time where each line has to be looked at: that takes ten times as
    long."""
    if (valid := _prove_all_valid(lines, first_line, event_bytes_max)) is not None:
        yield valid
        return
    for start in range(0, len(lines), PART_LINES):
        part = lines[start : start + PART_LINES]
        yield _validate_each(part, first_line + start, event_bytes_max)


def validate_line(line: bytes, event_bytes_max: int) -> tuple[bytes, Envelope]:
    """The line as the log keeps it, and its envelope. Raises EventInvalid."""
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


# The proof for many lines at once


class _KnownEvent(EventFields, kw_only=True, gc=False, tag_field="type"):
    """An event of a known type; a subclass for each type has the structure of its payload."""


class _CustomEvent(EventFields, kw_only=True, gc=False):
    type: Annotated[Id, Meta(pattern=f"^{CUSTOM_PREFIX}")]
    payload: dict[str, Any]


_AnyEvent: Any = reduce(
    or_,
    (
        msgspec.defstruct(
            f"{payload.__name__}Event",
            [("payload", payload)],
            bases=(_KnownEvent,),
            tag=name,
            kw_only=True,
            gc=False,
        )
        for name, payload in PAYLOADS.items()
    ),
)

_decoder = msgspec.json.Decoder()
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()

#: Escapes that could hide a NUL in an id, or a colon from the count of colons.
_HIDING_ESCAPES = re.compile(rb"\\u00(?:00|3[aA])")


def _prove_all_valid(
    lines: Sequence[bytes], first_line: int, event_bytes_max: int
) -> ValidatedLines | None:
    """All lines, accepted as they are; None when that is not certain."""
    sent = lines
    lines = [line for line in lines if line.strip()]
    if not lines:
        return ValidatedLines([], [], [], [])
    if max(map(len, lines)) > event_bytes_max:
        return None
    chunk = b"\n".join(lines)
    if _HIDING_ESCAPES.search(chunk) or not _nested_flat(chunk, lines):
        return None
    events = decode_exact(lines)
    others = [at for at, event in enumerate(events) if event is None]
    exact = [event for event in events if event is not None] if others else events
    try:
        values = _decode_each([lines[at] for at in others])
        converted = _convert_all(values)
        stamps = stamps_of(exact) + [event.ts for event in converted]
    except (ValueError, RecursionError):
        return None
    colons = _count(encode_again(exact), b":")
    if values:
        colons += _count(_encoder.encode(values), b":")
    certain = (
        all(map(FIELDS.issuperset, values))
        # Of two equal keys a decoder keeps one: the other shows as a missing colon.
        and _count(chunk, b":") == colons
        and _timestamps_plausible(stamps)
    )
    if not certain:
        return None
    for at, event in zip(others, converted, strict=True):
        events[at] = event
    sessions, sources = [e.session_id for e in events], [e.source or None for e in events]
    unknown = []
    if others:
        numbers = [number for number, line in enumerate(sent, first_line) if line.strip()]
        unknown = [
            UnknownKeys(numbers[at], value) for at, value in zip(others, values, strict=True)
        ]
    return ValidatedLines(lines, sessions, sources, [], unknown)


def _decode_each(lines: Sequence[bytes]) -> list[Any]:
    """The value of each line. Raises ValueError, RecursionError."""
    # The decoder only counts values. Inside a value, no line that ends with a brace is followed by
    # one that begins with a brace.
    values = _decoder.decode_lines(b"\n".join(lines))
    braces = all(line.startswith(b"{") and line.endswith((b"}", b"}\r")) for line in lines)
    if len(values) != len(lines) or not braces:
        raise ValueError("some line is not one object")
    return values


def _convert_all(values: list[Any]) -> list[Any]:
    """The values as structures, in their order. Custom types are converted apart from the known
    ones, because all of a kind at once is much faster than one by one."""
    if not values:
        return []
    names = [value.get("type") if isinstance(value, dict) else None for value in values]
    known = [isinstance(name, str) and name in PAYLOADS for name in names]
    events = iter(msgspec.convert(list(compress(values, known)), list[_AnyEvent]))
    if all(known):
        return list(events)
    others = [value for value, is_known in zip(values, known, strict=True) if not is_known]
    custom = iter(msgspec.convert(others, list[_CustomEvent]))
    return [next(events) if is_known else next(custom) for is_known in known]


def _count(data: bytes, mark: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(mark)))


def _nested_flat(chunk: bytes, lines: Sequence[bytes]) -> bool:
    """Whether no line has more opening brackets, inside texts or out, than may be nested."""
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


def _validate_each(lines: Sequence[bytes], first_line: int, event_bytes_max: int) -> ValidatedLines:
    validated = ValidatedLines([], [], [], [], unknown := list[UnknownKeys]())
    for number, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        try:
            line_in_log, envelope, value = _judged(line, event_bytes_max)
        except EventInvalid as error:
            reason = str(error)[:REASON_CHARS_MAX]
            validated.rejections.append(Rejection(number, reason, line, source_of(line)))
            continue
        unknown.append(UnknownKeys(number, value))
        validated.lines.append(line_in_log)
        validated.sessions.append(envelope.session_id)
        validated.sources.append(envelope.source)
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
    """The decoder keeps one of two equal keys; the other one shows as missing colons."""
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
    """The source that a rejected line names, for the ledger; None when it names none."""
    try:
        source = _source_decoder.decode(line).source
    except (ValueError, RecursionError):
        return None
    return source if source is None or "\0" not in source else None
