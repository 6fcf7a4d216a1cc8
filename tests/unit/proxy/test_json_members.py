"""What is cut out of a text leaves all else as it was; events are the same however they come."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.doors.proxy.engine import EventCutter, changed, elements_of, members_of, removals

_TEXTS = st.text('a1é\U0001f469"\\\n\u2028{}[]:, ', max_size=6)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=8,
)
_SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


@settings(max_examples=40)
@given(st.dictionaries(_TEXTS, _VALUES, max_size=5), _SPACES, st.booleans(), st.data())
def test_what_is_taken_out_is_gone_and_all_else_is_there(
    document: dict[str, object], spaces: tuple[str, str], ascii_: bool, data: st.DataObject
) -> None:
    text = json.dumps(document, separators=spaces, ensure_ascii=ascii_).encode("utf-8", "replace")
    document = json.loads(text)
    members = members_of(text)
    assert {name: json.loads(text[m.value : m.end]) for name, m in members.items()} == document
    names = data.draw(st.sets(st.sampled_from(sorted(document)))) if document else set()
    left = changed(text, removals(members, names))
    assert json.loads(left) == {n: v for n, v in document.items() if n not in names}


@settings(max_examples=40)
@given(st.lists(_VALUES, max_size=5), _SPACES)
def test_elements_stand_where_they_are(values: list[object], spaces: tuple[str, str]) -> None:
    text = json.dumps(values, separators=spaces).encode()
    found = [json.loads(text[start:end]) for start, end in elements_of(text, 0, len(text))]
    assert found == json.loads(text)


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="repeats"):
        members_of(b'{"a": 1, "b": 2, "a": 3}')


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=5)), st.lists(st.integers(1, 7), min_size=1), st.data())
def test_a_stream_is_cut_at_the_same_places_however_it_comes(
    parts: list[bytes], sizes: list[int], data: st.DataObject
) -> None:
    end = data.draw(st.sampled_from([b"\n\n", b"\r\n\r\n"]))
    text = b"".join(b"data: " + part.translate(None, b"\r\n") + end for part in parts) + b"tail"
    cutter, events, place = EventCutter(1_000), [], 0
    while place < len(text):
        size = sizes[place % len(sizes)]
        events += cutter.cut(text[place : place + size])
        place += size
    assert len(events) == len(parts)
    assert b"".join([*events, cutter.rest()]) == text
