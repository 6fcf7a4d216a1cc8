"""The traffic of benchmarks and large tests: the same for a seed, and like the real thing."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.event import CUSTOM_PREFIX, PAYLOADS
from penstock.events.validation import validate_lines
from tests.support.traffic import Event, batches, generate_sessions, interleave

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
EVENT_BYTES_MAX = 64 * 1024


@pytest.fixture(scope="module")
def sessions() -> list[list[Event]]:
    return list(generate_sessions(250, 7, start=START))


def events_of(sessions: Iterable[list[Event]], kind: str | None = None) -> list[Event]:
    return [event for session in sessions for event in session if kind in (None, event["type"])]


def digest(count: int, seed: int) -> str:
    events = events_of(generate_sessions(count, seed, start=START))
    return hashlib.sha256(b"".join(batches(events, 100))).hexdigest()


# Determinism


def test_a_seed_gives_the_same_bytes_for_ever() -> None:
    # A change of a shape or of a share changes this: benchmarks from before and after it
    # do not compare.
    assert digest(30, 7) == "7bbf056c0f0e89c8733969afaac61a91c738e1c6b1eb4245d0ec68c357d4cc80"


def test_another_seed_gives_other_sessions() -> None:
    assert digest(3, 7) != digest(3, 8)
    ids = {s[0]["session_id"] for seed in (7, 8) for s in generate_sessions(20, seed, start=START)}
    assert len(ids) == 40


def test_a_session_does_not_depend_on_how_many_there_are() -> None:
    few = list(generate_sessions(3, 7, start=START))
    assert few == list(islice(generate_sessions(9, 7, start=START), 3))


def test_start_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        next(generate_sessions(1, 7, start=START.replace(tzinfo=None)))


# The contract


def test_every_event_is_accepted(sessions: list[list[Event]]) -> None:
    events = events_of(sessions)
    lines = [line for body in batches(events, 500) for line in body.splitlines()]
    judged = validate_lines(lines, 1, EVENT_BYTES_MAX)
    assert judged.rejections == []
    assert len(judged.lines) == len(events)


def test_payload_fields_are_named_as_in_the_contract(sessions: list[list[Event]]) -> None:
    unknown: Counter[str] = Counter()
    for event in events_of(sessions):
        if not event["type"].startswith(CUSTOM_PREFIX):
            known = PAYLOADS[event["type"]].__struct_fields__
            unknown.update(event["payload"].keys() - set(known))
    # What a newer client may send, and nothing misspelt beside it.
    assert unknown.keys() == {"trace_id"}


def test_every_type_comes_up(sessions: list[list[Event]]) -> None:
    seen = {event["type"] for event in events_of(sessions)}
    assert set(PAYLOADS) <= seen
    assert any(kind.startswith(CUSTOM_PREFIX) for kind in seen)


def test_a_session_is_in_order(sessions: list[list[Event]]) -> None:
    for session in sessions:
        assert session[0]["type"] == "session_start"
        assert [event["seq"] for event in session] == list(range(len(session)))
        assert all(a["ts"] < b["ts"] for a, b in pairwise(session))
        assert len({event["session_id"] for event in session}) == 1


def test_identities_are_mostly_given_and_never_repeat(sessions: list[list[Event]]) -> None:
    events = events_of(sessions)
    named = [e for e in events if "event_id" in e]
    keyed = [e for e in events if "source_key" in e]
    bare = len(events) - len(named) - len(keyed)
    assert 0.85 < len(named) / len(events) < 0.98
    assert keyed
    assert 0 < bare < 0.02 * len(events)
    for field, some in (("event_id", named), ("source_key", keyed)):
        assert len({(e["session_id"], e[field]) for e in some}) == len(some)


def test_consent_is_mostly_given(sessions: list[list[Event]]) -> None:
    given_consent = Counter(session[0]["payload"]["consent"] for session in sessions)
    assert given_consent.keys() == {"train", "no_train", "unknown"}
    assert given_consent["train"] > 0.7 * len(sessions)


# Likeness to production


def test_sizes_are_realistic(sessions: list[list[Event]]) -> None:
    sizes = [len(msgspec.json.encode(event)) for event in events_of(sessions)]
    assert 1_450 < sum(sizes) / len(sizes) < 1_850
    assert 30 < len(sizes) / len(sessions) < 60


def test_tool_calls_have_results(sessions: list[list[Event]]) -> None:
    asked = {
        call["id"]
        for event in events_of(sessions, "model_call")
        for call in event["payload"].get("tool_calls", ())
    }
    answered = [event["payload"]["call_id"] for event in events_of(sessions, "tool_result")]
    assert len(answered) == len(set(answered))
    assert asked == set(answered)


def test_failed_tools_say_how(sessions: list[list[Event]]) -> None:
    results = [event["payload"] for event in events_of(sessions, "tool_result")]
    assert all(result["ok"] == ("error_class" not in result) for result in results)
    assert len({result["error_class"] for result in results if not result["ok"]}) == 6


def test_edits_fit_together(sessions: list[list[Event]]) -> None:
    """What the agent wrote is what the next look at the file finds, unless the user came first."""
    fates: Counter[str] = Counter()
    for session in sessions:
        edits = {e["payload"]["edit_id"]: e["payload"] for e in session if e["type"] == "edit"}
        for event in session:
            if event["type"] != "file_observed":
                continue
            seen = event["payload"]
            latest = edits[seen["edit_ids"][-1]]
            assert latest["path"] == seen["path"]
            fates[_fate(latest, seen)] += 1
    assert min(fates[fate] for fate in ("kept", "changed", "reverted")) > 0
    assert fates["kept"] > fates.total() / 2


def _fate(edit: Event, seen: Event) -> str:
    if edit["after"] in seen["text"]:
        return "kept"
    return "reverted" if edit["before"] in seen["text"] else "changed"


# Delivery

lengths = st.lists(st.integers(0, 12), max_size=20)


@given(lengths, st.integers(1, 25), st.integers(0, 5))
def test_interleaving_loses_nothing_and_keeps_order(
    lengths: list[int], concurrent: int, seed: int
) -> None:
    sessions = [[{"of": i, "seq": seq} for seq in range(n)] for i, n in enumerate(lengths)]
    order = defaultdict(list)
    for event in interleave(sessions, concurrent, seed):
        order[event["of"]].append(event)
    assert order == {i: session for i, session in enumerate(sessions) if session}


def test_interleaving_mixes_and_reads_no_more_than_is_in_flight() -> None:
    started = []

    def watched() -> Iterable[list[Event]]:
        for session in generate_sessions(30, 7, start=START):
            started.append(session[0]["session_id"])
            yield session

    mixed = interleave(watched(), 5, seed=1)
    first = [event["session_id"] for event in islice(mixed, 20)]
    assert len(set(first)) > 1
    # A session that ended makes room for one more.
    assert len(started) <= 6


def test_interleaving_depends_on_the_seed() -> None:
    sessions = list(generate_sessions(10, 7, start=START))
    assert list(interleave(sessions, 4, 1)) == list(interleave(sessions, 4, 1))
    assert list(interleave(sessions, 4, 1)) != list(interleave(sessions, 4, 2))


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_batches_hold_every_event_once(size: int) -> None:
    events = events_of(generate_sessions(3, 7, start=START))
    bodies = list(batches(events, size))
    decoded = [msgspec.json.Decoder().decode_lines(body) for body in bodies]
    assert [len(batch) for batch in decoded[:-1]] == [size] * (len(bodies) - 1)
    assert [event for batch in decoded for event in batch] == events


def test_nothing_is_lost_to_an_impossible_size() -> None:
    with pytest.raises(ValueError, match="at least one"):
        next(batches([{}], 0))
    with pytest.raises(ValueError, match="at least one"):
        next(interleave([[{}]], 0, 1))
