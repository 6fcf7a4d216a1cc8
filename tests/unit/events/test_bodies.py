"""Bodies are cut into lines in one way, whatever the chunks, and a broken part costs no other."""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.events import bodies
from penstock.events.bodies import CHUNK_LINES_MAX, ArrayTooLarge, split_body

CHUNK = 256 * 1024


def numbered(body: bytes, chunk_bytes: int = CHUNK, first_line: int = 1) -> list[tuple[int, bytes]]:
    """All lines that are not blank, with their numbers."""
    return [
        (number, line)
        for first, lines in split_body([body], chunk_bytes, first_line)
        for number, line in enumerate(lines, first)
        if line.strip()
    ]


def elements(body: bytes, chunk_bytes: int = CHUNK) -> list[bytes]:
    return [line for _, line in numbered(body, chunk_bytes)]


# NDJSON

bodies_of_lines = st.lists(
    st.binary(max_size=12) | st.sampled_from([b"", b"\r", b'{"a":1}', b"x" * 50])
).map(b"\n".join)


@given(bodies_of_lines, st.integers(1, 60), st.integers(1, 10))
@example(b"\n\n\n", 1, 1)
@example(b"a\n" + b"b" * 50 + b"\nc\n", 3, 1)  # a line longer than a chunk
def test_chunk_size_does_not_matter(body: bytes, chunk_bytes: int, first: int) -> None:
    expected = [
        (number, line) for number, line in enumerate(body.split(b"\n"), first) if line.strip()
    ]
    if not re.match(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[", body) and body[:3] != b"\xef\xbb\xbf":
        assert numbered(body, chunk_bytes, first) == expected


def test_byte_order_mark_costs_nothing() -> None:
    assert elements(b'\xef\xbb\xbf{"a":1}\n{"b":2}') == [b'{"a":1}', b'{"b":2}']
    assert elements(b'\xef\xbb\xbf[{"a":1},\n{"b":2}]') == [b'{"a":1}', b'{"b":2}']
    assert elements(b'\xef\xbb\xbf[{"a":1},oops]') == [b'{"a":1}', b"oops"]


def test_100_000_lines_come_in_small_chunks() -> None:
    chunks = list(split_body([b"{}\n" * 100_000], CHUNK))
    assert sum(len(lines) for _, lines in chunks) == 100_000
    assert max(len(lines) for _, lines in chunks) <= CHUNK_LINES_MAX
    assert [first for first, _ in chunks] == sorted({first for first, _ in chunks})


@given(
    bodies_of_lines | st.just(b"[1,\n[2],3]\nbehind"),
    st.lists(st.integers(0, 200)),
    st.integers(1, 60),
    st.booleans(),
)
def test_where_parts_are_cut_does_not_matter(
    body: bytes, cuts: list[int], chunk_bytes: int, ndjson: bool
) -> None:
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    parts = [body[start:end] for start, end in itertools.pairwise(places)]
    chunks = split_body(parts, chunk_bytes, ndjson=ndjson)
    lines = [(at, line) for first, chunk in chunks for at, line in enumerate(chunk, first)]
    whole = split_body([body], chunk_bytes, ndjson=ndjson)
    expected = [(at, line) for first, chunk in whole for at, line in enumerate(chunk, first)]
    assert lines == expected


def test_large_body_of_lines_is_never_held_whole() -> None:
    """Its lines come before its last parts do."""
    parts = iter([b'{"a":1}\n' * 10_000] * 100)
    assert next(lines for _, lines in split_body(parts, CHUNK) if lines)
    assert sum(1 for _ in parts) == 99


def test_array_over_the_limit_is_refused_before_it_is_whole() -> None:
    parts = iter([b"[1", *[b",1" * 50_000] * 100, b"]"])
    with pytest.raises(ArrayTooLarge, match="more than 300000 bytes"):
        list(split_body(parts, CHUNK, array_bytes_max=300_000))
    assert next(parts)


@pytest.mark.parametrize("around", [(b"", b""), (b"[", b"]")])
def test_of_a_line_over_the_limit_only_the_beginning_comes(around: tuple[bytes, bytes]) -> None:
    between = b"," if around[0] else b"\n"
    long = b'{"text":"' + b"x" * 5_000_000 + b'"}'
    body = around[0] + between.join([event("a"), long, event("b"), long, event("c")]) + around[1]
    parts = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]
    chunks = split_body(parts, CHUNK, line_bytes_max=1_000)
    lines = [line for _, chunk in chunks for line in chunk if line]
    assert lines == [event("a"), long[:1001], event("b"), long[:1001], event("c")]


# Arrays

values = st.recursive(
    st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
layouts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"indent": st.sampled_from([None, 0, 2]), "ensure_ascii": st.booleans()}
)


@given(st.lists(values.filter(bool)), layouts, st.integers(1, 60), st.booleans())
def test_array_is_its_elements(
    sent: list[object], layout: dict[str, Any], chunk_bytes: int, broken: bool
) -> None:
    """Also when it is not read at once, because something in it is broken."""
    body = json.dumps(sent, **layout, default=str).encode(errors="replace")
    if broken:
        body = body.rstrip()[:-1] + (b"," if sent else b"") + b" oops ]"
    found = elements(b" \r\n" + body, chunk_bytes)
    assert b"\n" not in b"".join(found)
    if broken:
        assert found.pop() == b"oops"
    assert [json.loads(element) for element in found] == json.loads(json.dumps(sent))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # One element broken, its neighbours whole
        (b'[{"a":1},{"b":},{"c":3}]', [b'{"a":1}', b'{"b":}', b'{"c":3}']),
        (b'[{"a":1},oops,{"c":3}]', [b'{"a":1}', b"oops", b'{"c":3}']),
        (b'[{"a":NaN},{"c":"],{"}]', [b'{"a":NaN}', b'{"c":"],{"}']),
        (b'[{"a":"\\q"},{"c":3}]', [b'{"a":"\\q"}', b'{"c":3}']),
        (b'[{"a":"\\""},{"b":"\xff"},1e999]', [b'{"a":"\\""}', b'{"b":"\xff"}', b"1e999"]),
        (b'[{"a":1]},{"c":3}]', [b'{"a":1]}', b'{"c":3}']),
        (b'[},{"c":3}]', [b"}", b'{"c":3}']),
        # A comma too many
        (b'[{"a":1},]', [b'{"a":1}']),
        (b'[,{"a":1},,{"b":2}]', [b'{"a":1}', b'{"b":2}']),
        # No end: what is whole is kept, the rest is one that is refused
        (b'[{"a":1},{"b":2}', [b'{"a":1}', b'{"b":2}', b"["]),
        (b'[{"a":1},', [b'{"a":1}', b"["]),
        (b'[{"a":1}, \n', [b'{"a":1}', b"["]),
        (b'[{"a":1},,', [b'{"a":1}', b"["]),
        (b'[{"a":1},{"b":', [b'{"a":1}', b'{"b":']),
        (b'[{"a":1},{"b":"x},{"c":3}]', [b'{"a":1}', b'{"b":"x},{"c":3}]']),
        (b'[{"a":1},{"b":"x\\', [b'{"a":1}', b'{"b":"x\\']),
        (b'[{"a":1},{{"b":2}]', [b'{"a":1}', b'{{"b":2}]']),
        (b"[", [b"["]),
        (b" [ ", [b"["]),
        (b"[]", []),
        (b"[ \n ]", []),
        # What stands behind the array is lines again
        (b'[{"a":1}]\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'[{"a":1}]]', [b'{"a":1}', b"]"]),
        (b'[INFO] up\n{"a":1}\n{"b":2}', [b"INFO", b" up", b'{"a":1}', b'{"b":2}']),
        # Line breaks: outside of texts white space, inside not JSON
        (b'[\n{\n"a":\r\n1\n}\n,\n{"b":2}\n]\n', [b'{ "a":\r 1 }', b'{"b":2}']),
        (b'[{"a":\n"x\ny"},{"b":2}]', [b'{"a":\n"x\ny"}', b'{"b":2}']),
        (b'[{"a":"\\\n"},{"b":2}]', [b'{"a":"\\\n"}', b'{"b":2}']),
    ],
)
def test_broken_array(body: bytes, expected: list[bytes]) -> None:
    for chunk_bytes in (1, 7, CHUNK):
        assert elements(body, chunk_bytes) == expected


def event(session: str) -> bytes:
    return json.dumps({"session_id": session, "ts": 1, "type": "t", "payload": {}}).encode()


@pytest.mark.parametrize(
    "broken",
    [
        b'{"a": [1, 2}',
        b'{"a": {"b": 1}',
        b'{"a": "x}',
        b"{" * 10,
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"session_id": "s", "payload": {"x": [{}, {"y": ]}}',
        b'"',
        b"{\xff",
    ],
)
@pytest.mark.parametrize("between", [b",", b", ", b",\n  "])
def test_a_broken_element_never_costs_its_neighbours(broken: bytes, between: bytes) -> None:
    body = b"[" + between.join([event("a"), broken, event("b"), broken, event("c")]) + b"]"
    whole = [line for line in elements(body) if line.startswith(b'{"session_id": "')]
    assert [json.loads(line)["session_id"] for line in whole if line in map(event, "abc")] == [
        "a", "b", "c",
    ]  # fmt: skip


def test_ndjson_may_begin_with_a_bracket() -> None:
    body = b"[1, 2]\n" + event("a") + b"\n"
    lines = [line for _, chunk in split_body([body], CHUNK, ndjson=True) for line in chunk]
    assert lines[:2] == [b"[1, 2]", event("a")]


def test_array_of_very_many_elements_is_never_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its elements come lazily, by the same rules."""
    body = b'[{"a": [1, 2]}, {"b": "x,]"}, {"c": 3}]'
    at_once = elements(body)
    monkeypatch.setattr(bodies, "ARRAY_BYTES_AT_ONCE_MAX", 1)
    assert elements(body) == at_once
    chunks = split_body([b"[" + b"1," * 100_000 + b"1]"], CHUNK)
    assert len(next(chunks)[1]) == CHUNK_LINES_MAX


# Hostile bodies

HOSTILE: list[Callable[[int], bytes]] = [
    lambda n: b'["' + b'\\"' * n,
    lambda n: b'[{"a":"' + b"\\" * n,
    lambda n: b"[" + b'"' * n,
    lambda n: b"[" + b"[" * n,
    lambda n: b"[" + b"{}" * n,
    lambda n: b"[" + b"}" * n,
    lambda n: b"[oops," + b"1," * n,
    lambda n: b'[{"a":"' + b"\n" * n,
    lambda n: b"[oops," + b"[[[]]]," * n,
    lambda n: b" " * n + b"[oops]",
    lambda n: b"[" + b" " * n,
    lambda n: b'[{"' + b'",\n"' * n,
]


class _Steps:
    """Stands for a pattern, and counts the bytes that it is shown to have passed."""

    def __init__(self, pattern: re.Pattern[bytes], most: list[int]) -> None:
        self._pattern = pattern
        self._passed = most

    def match(self, body: bytes, at: int, last: int) -> "re.Match[bytes] | None":
        found = self._pattern.match(body, at, last)
        self._passed[0] += 1 + (found.end() - at if found else 0)
        return found


@pytest.mark.parametrize("hostile", HOSTILE, ids=[str(i) for i in range(len(HOSTILE))])
def test_each_byte_is_passed_once(
    monkeypatch: pytest.MonkeyPatch, hostile: Callable[[int], bytes]
) -> None:
    """The search for elements never goes back, so its time grows as the body does."""
    passed = [0]
    for name in ("_BETWEEN_ELEMENTS", "_IN_ELEMENT"):
        monkeypatch.setattr(bodies, name, _Steps(getattr(bodies, name), passed))
    body = hostile(20_000)
    assert elements(body) is not None
    assert passed[0] <= 2 * len(body) + 10


def test_element_with_endless_brackets_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "ELEMENT_BRACKETS_MAX", 10)
    assert elements(b"[1," + b"[" * 50 + b",2]") == [b"1", b"[" * 50 + b",2]"]


@given(st.lists(st.sampled_from([*'[]{},":\\ \nx1'])).map("".join), st.integers(1, 20))
def test_nothing_is_lost_and_nothing_invented(rest: str, chunk_bytes: int) -> None:
    """Whatever is sent: all of its bytes but separators and white space come out, in order."""
    body = b"[" + rest.encode()

    def core(data: bytes) -> bytes:
        return re.sub(rb"[\[\],\s]", b"", data)

    assert core(b"".join(elements(body, chunk_bytes))) == core(body)
