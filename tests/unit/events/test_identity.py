"""Who an event is: what makes two events one, and what never does."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.event import KEY_BYTES, event_key, session_key
from penstock.events.validation import validate_line

Event = dict[str, Any]

EVENT: Event = {
    "session_id": "s-1",
    "seq": 12,
    "ts": "2026-11-21T10:00:00.125Z",
    "type": "user_message",
    "payload": {"text": "héllo\n", "n": [1, 2.5, None]},
}
NAMED = EVENT | {"event_id": "e-1", "source": "ed", "source_key": "k-1"}
KEYED = EVENT | {"source": "ed", "source_key": "k-1"}


def key(event: Event | bytes, tenant: str = "acme") -> bytes:
    """The identity of an event that is accepted."""
    line = event if isinstance(event, bytes) else json.dumps(event).encode()
    _, envelope = validate_line(line, 1_000_000)
    return event_key(session_key(tenant, envelope.session_id), envelope)


@pytest.mark.parametrize(
    ("event", "digest"),
    [
        (NAMED, "bfb56f6035d0b8031686f6e16d7ba982"),
        (KEYED, "a4d8c980431dc1d49f6aa27f00c92e13"),
        (EVENT, "b8f85aaa8feee1fe04b96bac23fbdf89"),
        (EVENT | {"trace": {"b": 1, "a": 2}}, "de075b1284f4c073b3135bf080ed3779"),
    ],
    ids=["event_id", "source_key", "content", "content with unknown fields"],
)
def test_identities_never_change(event: Event, digest: str) -> None:
    """They are stored: with other digests, all events sent again would be stored twice."""
    assert key(event).hex() == digest
    assert len(key(event)) == KEY_BYTES


def test_event_id_alone_decides() -> None:
    """With it, the same event may come by another path with other facts."""
    other = NAMED | {"payload": {"text": "x"}, "ts": 1_763_719_200_000_000, "source_key": "k-2"}
    assert key(NAMED) == key(other | {"seq": 1, "source": "importer", "trace": 1})
    assert key(NAMED) != key(NAMED | {"event_id": "e-2"})


def test_source_key_with_its_source_decides_next() -> None:
    assert key(KEYED) == key(KEYED | {"payload": {"text": "x"}, "seq": 1})
    others = [KEYED | {"source_key": "k-2"}, KEYED | {"source": "ci"}, KEYED | {"source": None}]
    assert len({key(KEYED), *map(key, others)}) == 4


def test_ways_of_naming_sessions_and_tenants_do_not_meet() -> None:
    """An event_id that reads like a source_key, or like content, is neither."""
    keys = set()
    for event in (EVENT | {"event_id": "k-1"}, EVENT | {"source_key": "k-1"}, EVENT):
        keys |= {key(event), key(event | {"session_id": "s-2"}), key(event, tenant="bolt")}
    assert len(keys) == 9


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 13},
        {"seq": None},
        {"ts": "2026-11-21T10:00:00.125001Z"},
        {"type": "x_message"},
        {"payload": {"text": "héllo\n", "n": [1, 2.5]}},
        {"payload": {"text": "héllo\n", "n": [2.5, 1, None]}},
        {"payload": {"text": "héllo\n", "n": [True, 2.5, None]}},
        {"payload": {"text": "héllo\n", "n": ["1", 2.5, None]}},
        {"payload": {"text": "héllo\n", "n": [1, 2.5, None], "more": None}},
        {"source": "ed"},
        {"checkpoint": "c"},
        {"user": "u"},
        {"project": "p"},
        {"trace": 1},
        {"extra": {"trace": 1}},
    ],
    ids=str,
)
def test_any_other_content_is_another_event(change: Event) -> None:
    assert key(EVENT) != key(EVENT | change)


def test_user_and_project_do_not_run_together() -> None:
    one, two = EVENT | {"user": "a", "project": "bc"}, EVENT | {"user": "ab", "project": "c"}
    assert key(one) != key(two)


def test_numbers_that_no_float_can_tell_apart_differ() -> None:
    one, two = (EVENT | {"payload": {"text": "", "n": n}} for n in (10**30, 10**30 + 1))
    assert key(one) != key(two)


def test_form_of_the_text_does_not_matter() -> None:
    """Spacing, the order of keys, escapes, and nulls for what is not there."""
    same = [
        json.dumps(EVENT),
        json.dumps(EVENT, indent=None, separators=(",", ":"), ensure_ascii=False),
        json.dumps(dict(reversed(EVENT.items()))),
        json.dumps(EVENT | {"payload": dict(reversed(EVENT["payload"].items()))}),
        json.dumps(EVENT).replace("h", "\\u0068").replace("s-1", "\\u0073-1"),
        json.dumps(EVENT | {"event_id": None, "source": None, "user": None}),
        json.dumps(EVENT).replace("2.5", "25e-1"),
    ]
    assert {key(text.encode()) for text in same} == {key(EVENT)}


def test_form_of_the_time_does_not_matter() -> None:
    stamps = [
        "2026-11-21T10:00:00.125Z",
        "2026-11-21t10:00:00.125000000z",
        "2026-11-21 10:00:00.125+00:00",
        "2026-11-21T15:30:00.125+05:30",
        1_795_255_200_125_000,
    ]
    assert {key(EVENT | {"ts": ts}) for ts in stamps} == {key(EVENT)}


def test_unknown_fields_count_in_any_order_and_spacing() -> None:
    one = json.dumps(EVENT | {"a": 1, "b": {"c": 2, "d": 3}})
    two = json.dumps(EVENT | {"b": {"d": 3, "c": 2}, "a": 1}, separators=(",", ":"))
    assert key(one.encode()) == key(two.encode())


ids = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=4
) | st.sampled_from(["e", "s", "c", "\\0", "\N{SYMBOL FOR NULL}", "\x01"])


@given(
    st.lists(
        st.tuples(ids, ids, ids | st.none(), ids | st.none(), ids | st.none()),
        unique=True,
        min_size=2,
        max_size=2,
    )
)
def test_parts_cannot_be_shifted_into_each_other(
    parts: list[tuple[str, str, str | None, str | None, str | None]],
) -> None:
    """NUL separates them and cannot stand in an id: equal keys mean equal names."""
    named: dict[bytes, tuple[object, ...]] = {}
    for tenant, session, event_id, source, source_key in parts:
        event = EVENT | {"session_id": session, "event_id": event_id}
        made = key(event | {"source": source, "source_key": source_key}, tenant=tenant)
        if event_id is not None:
            name: tuple[object, ...] = (tenant, session, "e", event_id)
        elif source_key is not None:
            name = (tenant, session, "s", source, source_key)
        else:
            name = (tenant, session, "c", source)
        assert named.setdefault(made, name) == name
