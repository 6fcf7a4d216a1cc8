"""From the bytes that a producer sent to events that may enter the log.

`judge_line` is the definition of what is accepted and why not. `judge` gives the same
answers for many lines at once: it proves whole chunks good with a few calls into C, and
goes line by line only through chunks where that proof fails.
"""

import json
import re
from collections.abc import Sequence
from itertools import compress
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from penstock.events.event import (
    FIELDS,
    TS_MAX,
    TS_MAX_US,
    TS_MIN,
    TS_MIN_US,
    Common,
    Envelope,
    Id,
    microseconds,
)
from penstock.events.payloads import CUSTOM_PREFIX, PAYLOADS, Payload

#: Deeper than any real payload; JSON readers downstream recurse.
NESTING_MAX = 200
REASON_CHARS_MAX = 300


class Rejection(NamedTuple):
    """A line that was refused; `line` counts from 1 as an editor does."""

    line: int
    reason: str
    raw: bytes
    source: str | None


class Judged(NamedTuple):
    """What `judge` found, in the order of the lines."""

    #: Each one line of JSON in the form that the log keeps.
    lines: list[bytes]
    sessions: list[str]
    sources: list[str | None]
    rejections: list[Rejection]


class Refusal(ValueError):
    """Why a line is not an event; the text is for the producer."""


def judge(lines: Sequence[bytes], first_line: int, event_bytes_max: int) -> Judged:
    """Judge consecutive lines; blank ones are skipped but counted."""
    good = _judge_all_good(lines, event_bytes_max)
    return good or _judge_each(lines, first_line, event_bytes_max)


def judge_line(line: bytes, event_bytes_max: int) -> tuple[bytes, Envelope]:
    """The line as the log keeps it, and its envelope. Raises Refusal."""
    if len(line) > event_bytes_max:
        raise Refusal(f"the event has {len(line)} bytes, over the limit of {event_bytes_max}")
    value = _decode(line)
    if not isinstance(value, dict):
        raise Refusal("an event is a JSON object")
    if _brackets(line) > NESTING_MAX and _depth(value) > NESTING_MAX:
        raise Refusal(f"nested deeper than {NESTING_MAX} levels")
    _refuse_duplicate_keys(line, value)
    _check_type(value)
    envelope = _convert_envelope(line, value)
    unknown = value.keys() - FIELDS
    if unknown:
        sent = _fields_decoder.decode(line)  # as they were sent: numbers keep their digits
        extra = {name: raw for name, raw in sent.items() if name in unknown}
        envelope.extra = msgspec.Raw(_encoder.encode(extra))
        line = _encoder.encode(envelope)
    return line, envelope


# The proof for many lines at once


class _Known(Common, kw_only=True, gc=False, tag_field="type"):
    """An event of a known type; each adds the structure of its payload."""


class _Custom(Common, kw_only=True, gc=False):
    """An event of a producer's own type."""

    type: Annotated[Id, Meta(pattern=f"^{CUSTOM_PREFIX}")]
    payload: dict[str, Any]


def _event_structure(name: str, payload: type[Payload]) -> type[Struct]:
    return msgspec.defstruct(
        f"{payload.__name__}Event",
        [("payload", payload)],
        bases=(_Known,),
        tag=name,
        kw_only=True,
        gc=False,
    )


_structures = [_event_structure(name, payload) for name, payload in PAYLOADS.items()]
_AnyEvent: Any = _structures[0]
for _structure in _structures[1:]:
    _AnyEvent |= _structure

_decoder = msgspec.json.Decoder()
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


def _judge_all_good(lines: Sequence[bytes], event_bytes_max: int) -> Judged | None:
    """All lines accepted as they are, or None when that is not certain."""
    lines = [line for line in lines if line.strip()]
    if not lines:
        return Judged([], [], [], [])
    chunk = b"\n".join(lines)
    if max(map(len, lines)) > event_bytes_max or _escapes_need_a_look(chunk):
        return None
    try:
        values = _decoder.decode_lines(chunk)
        events = _structured(values)
    except (ValueError, RecursionError):
        return None
    certain = (
        len(values) == len(lines)
        and _object_each(lines)
        and all(map(FIELDS.issuperset, values))
        and _nested_flat(chunk, lines)
        and _count(chunk, b":") == _count(_encoder.encode(values), b":")
        and _timestamps_plausible([event.ts for event in events])
    )
    if not certain:
        return None
    return Judged(lines, [e.session_id for e in events], [e.source for e in events], [])


def _structured(values: list[Any]) -> list[Any]:
    """The values as structures, in their order; producers' own types apart from the known ones,
    since all at once is much faster than one by one."""
    known = [_type_of(one) in PAYLOADS for one in values]
    events = iter(msgspec.convert(list(compress(values, known)), list[_AnyEvent]))
    if all(known):
        return list(events)
    others = [one for one, is_known in zip(values, known, strict=True) if not is_known]
    own = iter(msgspec.convert(others, list[_Custom]))
    return [next(events) if is_known else next(own) for is_known in known]


def _type_of(value: Any) -> str:
    name = value.get("type") if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


def _object_each(lines: Sequence[bytes]) -> bool:
    """One value a line: the decoder itself minds only values. Inside a value a line that ends
    with a brace is never followed by one that begins with a brace."""
    return all(line.startswith(b"{") and line.endswith((b"}", b"}\r")) for line in lines)


def _escapes_need_a_look(chunk: bytes) -> bool:
    """Escapes that could hide a NUL in an id, or a colon from the count of colons."""
    return _ESCAPES.search(chunk) is not None


_ESCAPES = re.compile(rb"\\u00(?:00|3[aA])")


def _count(data: bytes, mark: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(mark)))


def _nested_flat(chunk: bytes, lines: Sequence[bytes]) -> bool:
    """No line has more opening brackets, inside texts or out, than may be nested."""
    folded = np.frombuffer(chunk, np.uint8) & 0xDF  # makes one mark of "{" and "["
    opening = np.flatnonzero(folded == ord("["))
    ends = np.cumsum([len(line) + 1 for line in lines])
    each = np.diff(np.searchsorted(opening, ends), prepend=0)
    return int(each.max()) <= NESTING_MAX


def _timestamps_plausible(stamps: list[Any]) -> bool:
    try:
        return bool(min(stamps) >= TS_MIN and max(stamps) < TS_MAX)
    except TypeError:  # integers, or a mixture
        return all(TS_MIN_US <= microseconds(ts) < TS_MAX_US for ts in stamps)


def _judge_each(lines: Sequence[bytes], first_line: int, event_bytes_max: int) -> Judged:
    judged = Judged([], [], [], [])
    for number, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        try:
            kept, envelope = judge_line(line, event_bytes_max)
        except Refusal as refusal:
            reason = str(refusal)[:REASON_CHARS_MAX]
            judged.rejections.append(Rejection(number, reason, line, _source_of(line)))
            continue
        judged.lines.append(kept)
        judged.sessions.append(envelope.session_id)
        judged.sources.append(envelope.source)
    return judged


# One line


def _decode(line: bytes) -> Any:
    try:
        return _decoder.decode(line)
    except UnicodeDecodeError as error:
        raise Refusal(f"not valid UTF-8: {error.reason} at byte {error.start} of a text") from None
    except RecursionError:
        raise Refusal(f"nested deeper than {NESTING_MAX} levels") from None
    except msgspec.ValidationError as error:
        raise Refusal(f"not valid JSON: {error}") from None  # a number out of range
    except msgspec.DecodeError as error:
        if b"\\ud" in line.lower() and _has_lone_surrogate(line):
            raise Refusal("not valid Unicode: a lone surrogate escape") from None
        why = str(error).removeprefix("JSON is malformed: ")
        raise Refusal(f"not valid JSON: {why}") from None


def _has_lone_surrogate(line: bytes) -> bool:
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _refuse_duplicate_keys(line: bytes, value: dict[str, Any]) -> None:
    """A decoder keeps one of two equal keys: what was lost shows as missing colons."""
    same_colons = line.count(b":") == _encoder.encode(value).count(b":")
    if same_colons and b"\\u003a" not in line and b"\\u003A" not in line:
        return

    def refuse(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Refusal(f"the key {name[:64]!r} stands twice in one object")
            seen.add(name)

    json.loads(line, object_pairs_hook=refuse, parse_int=str, parse_float=str)


def _brackets(line: bytes) -> int:
    return line.count(b"[") + line.count(b"{")


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


def _check_type(value: dict[str, Any]) -> None:
    name = value.get("type")
    if not isinstance(name, str):
        raise Refusal("`type` is missing" if name is None else "`type` is not a text")
    if name not in PAYLOADS and not name.startswith(CUSTOM_PREFIX):
        known = ", ".join(PAYLOADS)
        raise Refusal(f"unknown type {name[:64]!r}; known are {known}; own types begin with x_")


def _convert_envelope(line: bytes, value: dict[str, Any]) -> Envelope:
    payload = value.get("payload")
    if not isinstance(payload, dict):
        raise Refusal("`payload` is missing" if payload is None else "`payload` is not an object")
    try:
        if structure := PAYLOADS.get(value["type"]):
            msgspec.convert(payload, structure)
    except msgspec.ValidationError as error:
        raise Refusal(_at_payload(str(error))) from None
    try:
        envelope = _envelope_decoder.decode(line)
    except msgspec.ValidationError as error:
        why = str(error)
        hint = f"; {_TS_FORMS}" if why.endswith("`$.ts`") else ""
        raise Refusal(why + hint) from None
    envelope.extra = msgspec.UNSET
    _check_envelope(envelope)
    return envelope


_TS_FORMS = "it is RFC 3339 with a zone, or integer microseconds since 1970"
_envelope_decoder = msgspec.json.Decoder(Envelope)
_IDS = ("session_id", "type", "event_id", "source", "source_key", "checkpoint", "user", "project")


def _check_envelope(envelope: Envelope) -> None:
    for name in _IDS:
        if "\0" in (getattr(envelope, name) or ""):
            raise Refusal(f"`{name}` holds a NUL character")
    ts = microseconds(envelope.ts)
    if not TS_MIN_US <= ts < TS_MAX_US:
        hint = "; integers are microseconds since 1970" if isinstance(envelope.ts, int) else ""
        raise Refusal(f"`ts` is not between the years 2000 and 2099{hint}")


def _at_payload(message: str) -> str:
    """msgspec says where relative to what it was given: make that the whole event."""
    if "`$" in message:
        return message.replace("`$", "`$.payload", 1)
    return f"{message} - at `$.payload`"


def _source_of(line: bytes) -> str | None:
    """The source that a refused line names, for the ledger; None when it cannot be told."""
    try:
        source = _source_decoder.decode(line).source
    except (ValueError, RecursionError):
        return None
    return source if source is None or "\0" not in source else None


class _Source(Struct):
    source: Id | None = None


_source_decoder = msgspec.json.Decoder(_Source)
