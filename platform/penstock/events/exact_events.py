"""Events that hold known fields and nothing else, decoded in one pass over their bytes.

The structures are those of `event.py`, but for two things. They refuse a field that they do not
know. And they tell a field that was left out from one that is null, so that an event that is
encoded again has as many keys as it had: where it has fewer, a key stood twice."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.events.event import PAYLOADS, READ_TOO, EventFields, Ts

#: After so many lines that are no such events others are only tried while most are.
_MISSES_MIN = 8


def _exact_type(kind: Any) -> Any:
    """The type with exact structures in it."""
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
_decoder = msgspec.json.Decoder(_ExactEvent)
_encoder = msgspec.json.Encoder()


def decode_exact(lines: Sequence[bytes]) -> list[Any]:
    """The event of each line; None where it is not of a known type with known fields alone, or was
    not tried, because most of those before it are not either."""
    events: list[Any] = []
    decode, missed = _decoder.decode, 0
    for line in lines:
        try:
            events.append(decode(line))
        except (ValueError, RecursionError):
            events.append(None)
            missed += 1
            if missed >= _MISSES_MIN and 2 * missed > len(events):
                break
    return events + [None] * (len(lines) - len(events))


def encode_again(events: Sequence[Any]) -> bytes:
    """JSON with each key and each text of these events."""
    return _encoder.encode(events)


def stamps_of(events: Sequence[Any]) -> list[Any]:
    """Their times, decoded. Raises ValueError."""
    return msgspec.convert([event.ts for event in events], list[Ts])
