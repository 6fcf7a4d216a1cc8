"""The ceiling: decode, validate, sort and write Parquet zstd-3, in process, on one core.

No HTTP, no sync, no database, no identities, no search for repeated events, no summaries. To
validate is what the gateway must refuse: broken JSON and UTF-8, lone surrogates, numbers out of
range, keys that stand twice, nesting, unknown types and wrong ones. The figure with nothing but a
typed decode for validation is reported beside it.

This program is frozen: it calls nothing of the product, so that a share of the ceiling means the
same after every change of the product. What it takes for an event is an event of 30 November 2026.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from bench.measure import cpu_seconds

_SEGMENT_ROWS = 20_000
_EVENT_BYTES_MAX = 8 * 1024 * 1024
_NESTING_MAX = 200
_ZSTD_LEVEL = 3
_TS_MIN, _TS_MAX = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Ceiling:
    cpu_s: float
    plain_bytes: int


# An event. A field that was left out differs from null. Events with fields that are not known are
# looked at one by one.

_Count = Annotated[int, Meta(ge=0)]
_Duration = Annotated[float, Meta(ge=0)]
_Id = Annotated[str, Meta(min_length=1, max_length=512)]
_Seq = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Ts = Annotated[datetime, Meta(tz=True)]
_Consent = Literal["train", "no_train", "unknown"]
_Link = Literal["resume", "fork", "compaction", "subagent"]
_ErrorClass = Literal[
    "invalid_arguments", "unexpected_environment", "provider_error", "user_aborted", "timeout",
    "unknown",
]  # fmt: skip
_Feedback = Literal["thumbs", "rating", "accept", "reject", "undo", "comment"]
_Reason = Literal["completed", "user_stop", "timeout", "crash"]


def _structure(
    name: str,
    needed: Mapping[str, Any],
    *texts: str,
    also: Mapping[str, Any] | None = None,
    exact: bool = True,
) -> Any:
    """Define an object of needed fields, and of texts and others that may be left out or null."""
    optional = dict.fromkeys(texts, str) | dict(also or {})
    fields: list[Any] = [*needed.items()]
    fields += [(field, kind | None | UnsetType, UNSET) for field, kind in optional.items()]
    more = {"__post_init__": _check_seen_file} if name == "file_observed" else {}
    return msgspec.defstruct(
        name, fields, namespace=more, kw_only=True, gc=False, forbid_unknown_fields=exact
    )


def _check_seen_file(seen: Any) -> None:
    if not seen.deleted and not isinstance(seen.text, str):
        raise ValueError("needs `text`, or `deleted: true`")


_ToolCall: Any = _structure("ToolCall", {"id": str, "name": str}, also={"arguments": Any})
_Usage = _structure(
    "Usage", {}, also=dict.fromkeys(("prompt", "completion", "thinking", "cached"), _Count)
)
_Experts = _structure("Experts", {"data": str, "shape": list[_Count], "dtype": str})
_Tokens = _structure("Tokens", {}, "tokenizer", "template", also={
    "prompt_ids": list[int], "completion_ids": list[int], "logprobs": list[float],
    "policy_version_runs": list[tuple[_Count, Any]], "routed_experts": _Experts,
})  # fmt: skip
_ANY = dict.fromkeys(("synthetic", "is_copied_context", "summary"), Any)
_KINDS: dict[str, tuple[dict[str, Any], tuple[str, ...], dict[str, Any]]] = {
    "session_start": (
        {},
        ("client", "client_version", "repo", "branch", "commit", "license", "task_id", "group_id",
         "arm", "parent_session"),
        {"consent": _Consent, "link": _Link, "system": Any, "tools": Any},
    ),
    "session_end": ({"reason": _Reason}, (), {}),
    "user_message": ({"text": str}, (), {}),
    "model_call": (
        {},
        ("call_id", "model", "text", "thinking", "finish_reason", "regenerates"),
        {"tool_calls": list[_ToolCall], "usage": _Usage, "latency_ms": _Duration,
         "ttft_ms": _Duration, "sampling": dict[str, Any], "tokens": _Tokens, "system": Any,
         "tools": Any},
    ),
    "tool_result": (
        {},
        ("call_id", "tool"),
        {"ok": bool, "error_class": _ErrorClass, "output": Any, "duration_ms": _Duration},
    ),
    "edit": (
        {"path": str, "before": str, "after": str}, ("edit_id", "call_id", "language"), {},
    ),
    "file_observed": (
        {"path": str},
        ("text",),
        {"deleted": bool, "branch_changed": bool, "edit_ids": list[str]},
    ),
    "feedback": ({"kind": _Feedback}, ("target", "comment"), {"value": bool | float | str}),
    "compaction": (
        {}, ("trigger", "summary_call_id"), {"tokens_before": _Count, "tokens_after": _Count},
    ),
    "vcs_commit": (
        {}, ("commit", "branch", "message"), {"parents": list[str], "files": list[Any]},
    ),
    "test_result": (
        {},
        ("command", "output"),
        {"passed": _Count, "failed": _Count, "skipped": _Count, "ok": bool,
         "duration_ms": _Duration},
    ),
    "interrupt": ({}, ("call_id", "reason"), {}),
    "error": ({}, ("message", "error_class", "call_id"), {}),
}  # fmt: skip
_payloads = {
    name: _structure(name, needed, *texts, also=also | _ANY)
    for name, (needed, texts, also) in _KINDS.items()
}
_OF_ALL = {"event_id": _Id, "seq": _Seq} | dict.fromkeys(
    ("source", "source_key", "checkpoint", "user", "project"), _Id
)
_exact_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    reduce(
        or_,
        (
            msgspec.defstruct(
                f"{name}_event",
                [("session_id", _Id), ("ts", str | int), ("payload", payload)]
                + [(field, kind | None | UnsetType, UNSET) for field, kind in _OF_ALL.items()],
                tag_field="type",
                tag=name,
                kw_only=True,
                gc=False,
                forbid_unknown_fields=True,
            )
            for name, payload in _payloads.items()
        ),
    )
)
_open_payloads = {
    name: _structure(name, needed, *texts, also=also, exact=False)
    for name, (needed, texts, also) in _KINDS.items()
}
_payload_decoders = {name: msgspec.json.Decoder(kind) for name, kind in _open_payloads.items()}
_any_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


class Envelope(Struct, kw_only=True, gc=False):
    """An event of any type, with the bytes of its payload."""

    session_id: _Id
    ts: _Ts
    type: _Id
    payload: Raw
    event_id: _Id | None = None
    seq: _Seq | None = None
    source: _Id | None = None
    source_key: _Id | None = None
    checkpoint: _Id | None = None
    user: _Id | None = None
    project: _Id | None = None


_decoder = msgspec.json.Decoder(Envelope)

# Validation

Validate = Callable[[bytes], list[Envelope]]
#: Escapes that could hide a NUL in an id, or a colon.
_HIDING_ESCAPES = re.compile(rb"\\u00(?:00|3[aA])")


def fully(body: bytes) -> list[Envelope]:
    """Everything that a gateway must find, in lines that are all events."""
    lines, events, known = body.splitlines(), list[Any](), list[bytes]()
    for line in lines:
        assert len(line) <= _EVENT_BYTES_MAX
        try:
            events.append(_exact_decoder.decode(line))
            known.append(line)
        except ValueError:
            _look_at(line)
    stamps = msgspec.convert([event.ts for event in events], list[_Ts])
    chunk = b"\n".join(known)
    assert not _HIDING_ESCAPES.search(chunk)
    assert _nested_flat(chunk, known)
    # Encoded again, an event in which a key stood twice has fewer of them.
    assert _colons(chunk) == _colons(_encoder.encode(events))
    assert min(stamps) >= _TS_MIN
    assert max(stamps) < _TS_MAX
    return _decoder.decode_lines(b"\n".join(lines))


def _look_at(line: bytes) -> None:
    event = _any_decoder.decode(line)
    assert line.count(b"[") + line.count(b"{") <= _NESTING_MAX
    assert line.count(b":") == _encoder.encode(event).count(b":")
    assert not _HIDING_ESCAPES.search(line)
    if structure := _open_payloads.get(event["type"]):
        msgspec.convert(event["payload"], structure)
    assert _TS_MIN <= _decoder.decode(line).ts < _TS_MAX


def _colons(data: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(":")))


def _nested_flat(chunk: bytes, lines: Sequence[bytes]) -> bool:
    """Whether no line has more opening brackets, even in texts, than may be nested."""
    opens = (np.frombuffer(chunk, np.uint8) & 0xDF) == ord("[")  # makes one mark of "{" and "["
    ends = np.cumsum([len(line) + 1 for line in lines])
    by_line = np.searchsorted(np.flatnonzero(opens), ends)
    by_line[1:] -= by_line[:-1].copy()
    return int(by_line.max()) <= _NESTING_MAX


def by_type(body: bytes) -> list[Envelope]:
    """A typed decode and no more: repeated keys and broken text in unknown fields pass."""
    events = _decoder.decode_lines(body)
    for event in events:
        if decoder := _payload_decoders.get(event.type):
            decoder.decode(event.payload)
    return events


# Parquet

_TIME = pa.timestamp("us", tz="UTC")
_COLUMNS = ["session_id", "ts", "seq", "type", "event_id", "source", "source_key"]
_COLUMNS += ["checkpoint", "user", "project"]
_TYPES = {"ts": _TIME, "seq": pa.int64()}


def measure_ceiling(bodies: Sequence[bytes], validate: Validate = fully) -> Ceiling:
    """CPU seconds for all bodies, and the size of what they are as plain Parquet."""
    written: list[int] = []

    def work() -> None:
        events: list[Envelope] = []
        for body in bodies:
            events += validate(body)
            if len(events) >= _SEGMENT_ROWS:
                written.append(_write(events))
                events = []
        if events:
            written.append(_write(events))

    return Ceiling(cpu_seconds(work), sum(written))


def _write(events: list[Envelope]) -> int:
    columns = {
        name: pa.array([getattr(event, name) for event in events], _TYPES.get(name, pa.string()))
        for name in _COLUMNS
    }
    payloads = pa.array([bytes(event.payload) for event in events], pa.binary())
    columns["payload"] = payloads.cast(pa.string())
    rows = pa.table(columns)
    ts, seq = rows["ts"].cast(pa.int64()), rows["seq"].fill_null(-1)
    sessions = rows["session_id"].combine_chunks().dictionary_encode().indices
    order = np.lexsort((seq.to_numpy(), ts.to_numpy(), sessions.to_numpy()))
    out = io.BytesIO()
    pq.write_table(
        rows.take(pa.array(order)),
        pa.PythonFile(out, mode="w"),
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
    )
    return out.tell()
