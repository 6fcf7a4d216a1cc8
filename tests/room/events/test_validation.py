"""What is accepted, what is refused and why, and that nothing of an event is lost on the way."""

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.events.event import FIELDS, ID_CHARS_MAX, microseconds
from penstock.events.frames import Frame, FrameHeader, decode_frame, encode_frame
from penstock.events.validation import (
    NESTING_MAX,
    REASON_CHARS_MAX,
    EventInvalid,
    Rejection,
    ValidatedLines,
    validate_line,
    validate_lines,
)
from penstock.lake.rows import DecodedEvents, RowGroupLimits

Event = dict[str, Any]

BYTES_MAX = 64 * 1024
SAMPLES: dict[str, Event] = {
    "session_start": {
        "client": "editor", "client_version": "1.2", "repo": "shop", "branch": "main",
        "commit": "abc", "consent": "train", "task_id": "t", "group_id": "g", "arm": "a",
        "parent_session": "s-0", "link": "fork", "license": "Apache-2.0",
        "system": "Be careful.", "tools": [{"name": "read"}],
    },
    "session_end": {"reason": "completed"},
    "user_message": {"text": "the streaming is broken: fix {it}"},
    "model_call": {
        "call_id": "c-1", "model": "m", "text": "ok", "thinking": "hm",
        "tool_calls": [{"id": "k", "name": "grep", "arguments": {"q": "[{"}}],
        "usage": {"prompt": 10, "completion": 2, "thinking": 0, "cached": 5},
        "latency_ms": 12.5, "ttft_ms": 3, "finish_reason": "stop", "sampling": {"top_p": 0.9},
        "regenerates": "c-0", "system": "Be careful.", "tools": [{"name": "read"}],
        "tokens": {
            "prompt_ids": [1, 2], "completion_ids": [3], "logprobs": [-0.5], "tokenizer": "t",
            "template": "x", "policy_version_runs": [[0, "v1"]],
            "routed_experts": {"data": "AA==", "shape": [1, 1], "dtype": "uint8"},
        },
    },
    "tool_result": {
        "call_id": "c-1", "tool": "grep", "ok": False, "error_class": "timeout",
        "output": {"lines": [1, None]}, "duration_ms": 8,
    },
    "edit": {
        "path": "../../etc/passwd", "before": "a\n", "after": "b\n", "edit_id": "e", "call_id": "c",
        "language": "python",
    },
    "file_observed": {
        "path": "a.py", "text": "x", "deleted": False, "branch_changed": True, "edit_ids": ["e"],
    },
    "feedback": {"target": "e", "kind": "thumbs", "value": True, "comment": "nice"},
    "compaction": {
        "trigger": "auto", "tokens_before": 9, "tokens_after": 3, "summary_call_id": "c",
    },
    "vcs_commit": {
        "commit": "abc", "branch": "main", "message": "m", "parents": ["d"], "files": ["a.py"],
    },
    "test_result": {
        "command": "pytest", "passed": 3, "failed": 0, "skipped": 1, "ok": True, "output": "",
        "duration_ms": 99.5,
    },
    "interrupt": {"call_id": "c", "reason": "esc"},
    "error": {"message": "boom", "error_class": "Whatever", "call_id": "c"},
}  # fmt: skip
REQUIRED = {
    "session_end": {"reason"},
    "user_message": {"text"},
    "edit": {"path", "before", "after"},
    "file_observed": {"path"},
    "feedback": {"kind"},
}
GOOD: Event = {
    "session_id": "s",
    "ts": "2026-11-21T10:00:00Z",
    "type": "user_message",
    "payload": {"text": "hi"},
}


def with_fields(**changes: object) -> bytes:
    """A good event with fields changed; `...` takes a field away."""
    return json.dumps({k: v for k, v in (GOOD | changes).items() if v is not ...}).encode()


def with_text(text: bytes) -> bytes:
    """A good event with this JSON as the payload's text."""
    return with_fields().replace(b'"hi"', text)


def typed(name: str, payload: object) -> bytes:
    return with_fields(type=name, payload=payload)


def nested(levels: int) -> bytes:
    """A custom event that is so deep, with its own object and its payload."""
    inside = levels - 2
    return with_fields(type="x_deep", payload={"a": 0}).replace(
        b": 0", b": " + b"[" * inside + b"]" * inside
    )


def reason_of(line: bytes, bytes_max: int = BYTES_MAX) -> str | None:
    """Why the line is refused; None when it is accepted."""
    judged = validate_lines([line], 1, bytes_max)
    assert len(judged.lines) + len(judged.rejections) == 1
    return judged.rejections[0].reason if judged.rejections else None


# What is refused, and what the producer reads


REFUSED: list[tuple[bytes, str]] = [
    # No event at all
    (b"hello", "not valid JSON: invalid character (byte 0)"),
    (b"{", "not valid JSON: Input data was truncated"),
    (with_fields()[:-10], "not valid JSON: Input data was truncated"),
    (with_fields() + b"}", "not valid JSON: trailing characters (byte 101)"),
    (with_fields() + b" " + with_fields(), "not valid JSON: trailing characters (byte 102)"),
    (b"\xef\xbb\xbf" + with_fields(), "not valid JSON: invalid character (byte 0)"),
    (with_fields().decode().encode("utf-16"), "not valid JSON: invalid character (byte 0)"),
    (b"[]", "an event is a JSON object"),
    (b'"{}"', "an event is a JSON object"),
    # JSON that others would not read back
    (with_text(b"NaN"), "not valid JSON: invalid character (byte 94)"),
    (with_text(b"-Infinity"), "not valid JSON: invalid character (byte 95)"),
    (with_text(b"1e999"), "not valid JSON: Number out of range - at `$[...][...]`"),
    (with_text(b"9" * 5000), "not valid JSON: Integer value out of range - at `$[...][...]`"),
    (with_text(b'"\x00"'), "not valid JSON: invalid character (byte 95)"),
    (with_text(b'"a\tb"'), "not valid JSON: invalid character (byte 96)"),
    (with_text(b'"\xff"'), "not valid UTF-8: invalid start byte at byte 0 of a text"),
    (with_fields(zone="é").replace(b"\\u00e9", b"\xe9"),
     "not valid UTF-8: unexpected end of data at byte 0 of a text"),
    (with_fields().replace(b'"s"', b'"s\xc3"'),
     "not valid UTF-8: unexpected end of data at byte 1 of a text"),
    (with_fields().replace(b'"hi"', b'"hi", "\xff": 1'),
     "not valid UTF-8: invalid start byte at byte 0 of a text"),
    (with_text(b'"\\ud800"'), "not valid Unicode: a lone surrogate escape"),
    (with_text(b'"\\uDfff\\ud800"'), "not valid Unicode: a lone surrogate escape"),
    (with_fields(x={"y": 0}).replace(b"0}", b'"\\uD83D"}'),
     "not valid Unicode: a lone surrogate escape"),
    # Keys that stand twice, also where a decoder hides it
    (with_fields().replace(b'"ts"', b'"ts": 1, "ts"'), "the key 'ts' stands twice in one object"),
    (with_fields().replace(b'"ts"', b'"ts": 1, "\\u0074s"'),
     "the key 'ts' stands twice in one object"),
    (with_text(b'"a", "text": "b"'), "the key 'text' stands twice in one object"),
    (with_text(b'"\\u003a", "text": "b"'), "the key 'text' stands twice in one object"),
    (with_text(b'"\\u003A\\u003A", "a": {"b": 1, "b": 1}'),
     "the key 'b' stands twice in one object"),
    (with_fields(zone=1).replace(b'"zone"', b'"zone": {"a:": 1, "a\\u003a": 2}, "z"'),
     "the key 'a:' stands twice in one object"),
    (with_text(b'"\\u003a", "n": ' + b"9" * 4300 + b', "text": "b"'),
     "the key 'text' stands twice in one object"),
    (with_fields().replace(b'{"s', b'{"type": "x_a", "s'),
     "the key 'type' stands twice in one object"),
    # Nesting
    (nested(NESTING_MAX + 1), "nested deeper than 200 levels"),
    (nested(990), "nested deeper than 200 levels"),
    (nested(10_000), "nested deeper than 200 levels"),
    (b"[" * 10_000, "nested deeper than 200 levels"),
    (b'{"a":' * 500 + b"1" + b"}" * 500, "nested deeper than 200 levels"),
    # The envelope
    (with_fields(session_id=...), "Object missing required field `session_id`"),
    (with_fields(session_id=""), "Expected `str` of length >= 1 - at `$.session_id`"),
    (with_fields(session_id=None), "Expected `str`, got `null` - at `$.session_id`"),
    (with_fields(session_id=5), "Expected `str`, got `int` - at `$.session_id`"),
    (with_fields(session_id="a" * 10_240), "Expected `str` of length <= 512 - at `$.session_id`"),
    (with_fields(session_id="a\0b"), "`session_id` holds a NUL character"),
    (with_fields(event_id="\0"), "`event_id` holds a NUL character"),
    (with_fields(source="\0", source_key="k"), "`source` holds a NUL character"),
    (with_fields(project="a\0"), "`project` holds a NUL character"),
    (with_fields(user=5), "Expected `str | null`, got `int` - at `$.user`"),
    (with_fields(user=""), "Expected `str` of length >= 1 - at `$.user`"),
    (with_fields(seq=-1), "Expected `int` >= 0 - at `$.seq`"),
    (with_fields(seq=2**63), "Expected `int` <= 9223372036854775807 - at `$.seq`"),
    (with_fields(seq=10**30), "Expected `int` <= 9223372036854775807 - at `$.seq`"),
    (with_fields(seq=1.0), "Expected `int | null`, got `float` - at `$.seq`"),
    (with_fields(seq=True), "Expected `int | null`, got `bool` - at `$.seq`"),
    (with_fields(seq="1"), "Expected `int | null`, got `str` - at `$.seq`"),
    # The type
    (with_fields(type=...), "`type` is missing"),
    (with_fields(type=None), "`type` is missing"),
    (with_fields(type=7), "`type` is not a text"),
    (with_fields(type="x_\0"), "`type` holds a NUL character"),
    (with_fields(type="x_" + "a" * ID_CHARS_MAX),
     "Expected `str` of length <= 512 - at `$.type`"),
    (typed("user_massage", {}),
     "unknown type 'user_massage'; known are session_start, session_end, user_message, model_call, "
     "tool_result, edit, file_observed, feedback, compaction, vcs_commit, test_result, interrupt, "
     "error; own types begin with x_"),
    # The time
    (with_fields(ts=...), "Object missing required field `ts`"),
    *[
        (with_fields(ts=ts), f"{why} - at `$.ts`; it is RFC 3339 with a zone, or integer "
         "microseconds since 1970")
        for ts, why in [
            ("yesterday", "Invalid RFC3339 encoded datetime"),
            ("2026-11-21", "Invalid RFC3339 encoded datetime"),
            ("2026-11-21T10:00Z", "Invalid RFC3339 encoded datetime"),
            ("2026-02-30T10:00:00Z", "Invalid RFC3339 encoded datetime"),
            ("2026-11-21T10:00:00", "Expected `datetime` with a timezone component"),
            (1_763_719_200.5, "Expected `int | datetime`, got `float`"),
            (True, "Expected `int | datetime`, got `bool`"),
            (None, "Expected `int | datetime`, got `null`"),
        ]
    ],
    *[
        (with_fields(ts=ts), "`ts` is not between the years 2000 and 2099; integers are "
         "microseconds since 1970")
        for ts in (1_763_719_200, 1_763_719_200_000, 1_763_719_200_000_000_000, 0, -5, 10**30)
    ],
    *[
        (with_fields(ts=ts), "`ts` is not between the years 2000 and 2099")
        for ts in ("1999-12-31T23:59:59.999999Z", "2100-01-01T00:00:00Z",
                   "0001-01-01T00:00:00+14:00", "2000-01-01T00:00:00+00:01")
    ],
    # The payload
    (with_fields(payload=...), "`payload` is missing"),
    (with_fields(payload=None), "`payload` is missing"),
    (with_fields(payload=[]), "`payload` is not an object"),
    (with_fields(type="x_a", payload="{}"), "`payload` is not an object"),
    (typed("user_message", {}), "Object missing required field `text` - at `$.payload`"),
    (with_text(b"null"), "Expected `str`, got `null` - at `$.payload.text`"),
    (with_text(b"1"), "Expected `str`, got `int` - at `$.payload.text`"),
    (typed("session_start", {"consent": "yes"}),
     "Invalid enum value 'yes' - at `$.payload.consent`"),
    (typed("session_end", {}), "Object missing required field `reason` - at `$.payload`"),
    (typed("file_observed", {"path": "a"}), "needs `text`, or `deleted: true` - at `$.payload`"),
    (typed("file_observed", {"path": "a", "text": None, "deleted": None}),
     "needs `text`, or `deleted: true` - at `$.payload`"),
    (typed("model_call", {"usage": {"prompt": -1}}),
     "Expected `int` >= 0 - at `$.payload.usage.prompt`"),
    (typed("model_call", {"tool_calls": [{"id": "1"}]}),
     "Object missing required field `name` - at `$.payload.tool_calls[0]`"),
    (typed("model_call", {"tokens": {"policy_version_runs": [[0]]}}),
     "Expected `array` of length 2, got 1 - at `$.payload.tokens.policy_version_runs[0]`"),
    (typed("model_call", {"latency_ms": "1"}),
     "Expected `float | null`, got `str` - at `$.payload.latency_ms`"),
    (typed("tool_result", {"ok": 1}), "Expected `bool | null`, got `int` - at `$.payload.ok`"),
    (typed("tool_result", {"error_class": "oops"}),
     "Invalid enum value 'oops' - at `$.payload.error_class`"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "reason"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_reason_is_exact_and_for_the_producer(line: bytes, reason: str) -> None:
    assert reason_of(line, 1_000_000) == reason


def test_event_over_the_limit_is_refused() -> None:
    line = with_fields()
    assert reason_of(line, len(line)) is None
    assert reason_of(line, len(line) - 1) == "the event is over the limit of 99 bytes"


def test_reason_is_never_long() -> None:
    assert len(reason_of(typed("\N{GRINNING FACE}" * 10_000, {})) or "") <= REASON_CHARS_MAX


def test_bad_line_is_kept_with_its_number_and_source() -> None:
    bad = with_fields(source="ci", payload=7)
    worse = with_fields(source="a\0b", payload=7)
    judged = validate_lines(
        [with_fields(), b"", bad, b"  ", b"{", worse, with_fields()], 10, BYTES_MAX
    )
    assert [(one.line, one.raw, one.source) for one in judged.rejections] == [
        (12, bad, "ci"),
        (14, b"{", None),
        (15, worse, None),
    ]
    assert judged.lines == [with_fields(), with_fields()]


def test_many_equal_keys_take_linear_time() -> None:
    """The search for the key looks at each key once."""
    keys = b"".join(b'"%d":0,' % i for i in range(60_000))
    line = with_text(b'"a",' + keys + b'"59999":0')
    assert reason_of(line, 10_000_000) == "the key '59999' stands twice in one object"


# What is accepted


ACCEPTED: list[bytes] = [
    with_fields(),
    with_fields() + b"\r",
    b" \t" + with_fields() + b"  ",
    nested(NESTING_MAX),
    with_text(b'"' + b"[{" * 1000 + b'"'),  # brackets in a text are no nesting
    with_text(b'"\\u0000"'),  # outside of ids a NUL may stand
    with_text(b'"\\ud83d\\ude00"'),
    with_text(b'"\\\\ud800"'),
    with_text(b'"", "n": ' + b"9" * 4300),
    with_text(b'"", "n": [1e308, -0, -0.0, 1E-999, 123456789012345678901234567890]'),
    with_fields(session_id="../../etc", event_id="C:\\nul", source="\u202e", user="😀"),
    with_fields(session_id="é" * ID_CHARS_MAX),
    with_fields(event_id=None, seq=None, source=None, source_key=None, checkpoint=None),
    with_fields(seq=0),
    with_fields(seq=2**63 - 1),
    with_fields(ts=1_763_719_200_000_000),
    with_fields(ts="2026-11-21T10:00:00.123456789Z"),
    with_fields(ts="2026-11-21t23:00:00.5+13:45"),
    with_fields(ts="2000-01-01T00:00:00Z"),
    with_fields(ts="2099-12-31T23:59:59.999999Z"),
    with_fields(type="x_", payload={}),
    with_fields(extra={"a": 1}, trace_id="t"),
    with_fields(extra=None),
    typed("file_observed", {"path": "a", "deleted": True}),
    typed("feedback", {"kind": "rating", "value": 4.5}),
    *[typed(name, payload) for name, payload in SAMPLES.items()],
]


@pytest.mark.parametrize("line", ACCEPTED, ids=[str(i) for i in range(len(ACCEPTED))])
def test_accepted(line: bytes) -> None:
    """So is what the log keeps of it: a replay, or another producer, meets the same rules."""
    assert reason_of(line) is None
    kept, _ = validate_line(line, BYTES_MAX)
    assert reason_of(kept) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_optional_field_may_be_null_or_absent(name: str) -> None:
    payload = SAMPLES[name]
    optional = payload.keys() - REQUIRED.get(name, set())
    if name == "file_observed":  # of these two one must say something
        optional -= {"text"}
    for field in optional:
        assert reason_of(typed(name, payload | {field: None})) is None, field
        absent = {other: value for other, value in payload.items() if other != field}
        assert reason_of(typed(name, absent)) is None, field


@pytest.mark.parametrize("name", REQUIRED)
def test_required_field_must_be_there(name: str) -> None:
    for field in REQUIRED[name]:
        absent = {other: value for other, value in SAMPLES[name].items() if other != field}
        assert f"`{field}`" in (reason_of(typed(name, absent)) or ""), field
        assert f".{field}`" in (reason_of(typed(name, SAMPLES[name] | {field: None})) or ""), field


# Lines in all shapes

texts = st.text(max_size=8) | st.sampled_from(
    ["a:b", "[{", "\0", "\\u003a", '"', "é", "\x7f", "😀"]
)
numbers = (
    st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**53 + 1, 10**400, -0.0, 1e-320])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
unknown_names = texts.map("u_".__add__)
unknown_fields = st.dictionaries(unknown_names, values, max_size=2)
ids = st.sampled_from(["s-1", "../../etc", "é", "a" * ID_CHARS_MAX]) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=9
)
stamps = st.sampled_from(
    ["2026-11-21T10:00:00.125Z", "2026-11-21T10:00:00.123456789+05:30", 1_763_719_200_000_000]
)


@st.composite
def payloads(draw: st.DrawFn) -> tuple[str, Event]:
    name = draw(st.sampled_from([*SAMPLES, "x_own"]))
    known = SAMPLES.get(name, {})
    return name, known | draw(unknown_fields)


@st.composite
def json_texts(draw: st.DrawFn, value: object) -> str:
    """The value as one of the texts that say it."""
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\r")])),
    )
    return text.replace("/", "\\/") if draw(st.booleans()) else text


@st.composite
def events(draw: st.DrawFn) -> tuple[bytes, Event, str]:
    """A line that must be accepted, the event that it says, and the text of its payload."""
    name, payload = draw(payloads())
    optional = st.fixed_dictionaries(
        {},
        optional={
            "seq": st.none() | st.integers(0, 2**63 - 1),
            **{
                field: st.none() | ids
                for field in ("event_id", "source", "source_key", "checkpoint", "user", "project")
            },
            "extra": values,
        },
    )
    event = {"session_id": draw(ids), "ts": draw(stamps), "type": name, "payload": payload}
    event |= draw(optional) | draw(st.just({}) | unknown_fields)
    payload_text = draw(json_texts(payload))
    parts = [
        draw(json_texts(field)) + ":" + (payload_text if field == "payload" else json.dumps(value))
        for field, value in draw(st.permutations(list(event.items())))
    ]
    return ("{" + ",".join(parts) + "}").encode(), event, payload_text


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good line with something done to its bytes."""
    line, _, _ = draw(events())
    at = draw(st.integers(0, len(line)))
    insert = draw(
        st.sampled_from(
            [b"", b"\x00", b"\xff", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b" ", b"\r",
             b"\\u003a", b"\\u0000", b"\\ud800", b"1e999", b"NaN", b"\xed\xa0\x80", b"null"]
        )
    )  # fmt: skip
    return line[:at] + insert + line[at + draw(st.integers(0, 3)) :]


@st.composite
def repeated_keys(draw: st.DrawFn) -> bytes:
    """A good line with one of its members once more, somewhere in the same or another object."""
    line, event, _ = draw(events())
    key = draw(st.sampled_from([*event, *event["payload"]]))
    spelled = draw(st.sampled_from([json.dumps(key), f'"{key[:1]}\\u003a"', f'"\\u003A{key}"']))
    opened = [at + 1 for at, byte in enumerate(line) if byte == ord("{")]
    at = draw(st.sampled_from(opened))
    return line[:at] + f"{spelled}:1,".encode() + line[at:]


good_lines = events().map(lambda made: made[0])
lines = st.lists(
    good_lines
    | good_lines
    | mutated()
    | repeated_keys()
    | st.sampled_from([line for line, _ in REFUSED if len(line) < 1000])
    | st.sampled_from(ACCEPTED)
    | st.sampled_from([b"", b" ", b"\r", b"{}", b"}", b"{", b'{"x":', b"1}", b"{}}", b"{{}"])
    | st.binary(max_size=100).map(lambda raw: raw.replace(b"\n", b"")),
    max_size=4,
)


def is_as_one_by_one(some: list[bytes], first_line: int, bytes_max: int) -> bool:
    """Whether they are judged as the definition says."""
    judged = ValidatedLines([], [], [], [])
    for number, line in enumerate(some, first_line):
        if not line.strip():
            continue
        try:
            kept, envelope = validate_line(line, bytes_max)
        except EventInvalid as refusal:
            reason = str(refusal)[:REASON_CHARS_MAX]
            judged.rejections.append(Rejection(number, reason, line, None))
        else:
            judged.lines.append(kept)
            judged.sessions.append(envelope.session_id)
            judged.sources.append(envelope.source)
    found = validate_lines(some, first_line, bytes_max)
    bare = [one._replace(source=None) for one in found.rejections]
    return found._replace(rejections=bare, unknown=()) == judged


@given(lines, st.sampled_from([BYTES_MAX, 150]))
@settings(max_examples=60)
def test_fast_proof_gives_the_same_answers_as_line_by_line(
    some: list[bytes], bytes_max: int
) -> None:
    """And whatever comes is accepted or refused: no bytes raise."""
    assert is_as_one_by_one(some, 5, bytes_max)


@pytest.mark.parametrize(
    "some",
    [
        # As many values as lines, but not one a line
        [with_fields() + with_fields(), with_fields()[:-1], b"}"],
        [with_fields() + b" " + with_fields(), b'{"session_id":"s",', with_fields()[1:]],
        [with_fields(), with_fields() + b" " + with_fields(), b"\x0b"],
        # Brackets close to the limit of the decoder's own recursion
        *[[nested(depth)] for depth in (199, 201, 990, 1000)],
    ],
)
def test_fast_proof_is_not_fooled(some: list[bytes]) -> None:
    assert is_as_one_by_one(some, 1, 1_000_000)


# Nothing is lost between the producer and the lake


def through_the_log(some: list[bytes]) -> DecodedEvents:
    """The lines, judged, kept in the log and read from it."""
    judged = validate_lines(some, 1, BYTES_MAX)
    assert judged.rejections == []
    header = FrameHeader(kind="events", tenant="acme", received_us=1, counts={"": len(some)})
    frame = decode_frame(encode_frame(Frame(header, b"\n".join(judged.lines))))
    decoded = DecodedEvents()
    assert decoded.add(frame) == []
    assert [event.session_id for event in decoded.events] == judged.sessions
    return decoded


def moment(ts: object) -> int:
    if isinstance(ts, str):
        text = ts.replace("123456789", "123457")  # as a clock with microseconds would say it
        return microseconds(datetime.fromisoformat(text))
    assert isinstance(ts, int)
    return ts


@given(st.lists(events(), min_size=1, max_size=3))
@settings(max_examples=50)
def test_accepted_event_comes_back_whole(sent: list[tuple[bytes, Event, str]]) -> None:
    """The payload byte for byte, each field of the envelope, and each unknown field."""
    decoded = through_the_log([line for line, _, _ in sent])
    consents = dict.fromkeys(decoded.sessions, "unknown")
    for i, (_, event, payload_text) in enumerate(sent):
        [table] = decoded.to_tables([i], consents, RowGroupLimits(1, 1))
        [row] = table.to_pylist()
        assert row["payload"] == payload_text
        assert json.loads(row["payload"]) == event["payload"]
        for field in FIELDS - {"ts", "payload"}:
            assert row[field] == event.get(field)
        assert microseconds(row["ts"]) == moment(event["ts"])
        unknown = {field: event[field] for field in event.keys() - FIELDS}
        assert json.loads(row["extra"] or "{}") == unknown
