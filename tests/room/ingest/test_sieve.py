"""A line that should not have come through the gateway never stops the others, nor is it lost."""

import json
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.events.frames import Frame, FrameHeader, encode_frame
from penstock.ingest.ledger import read_ledger
from penstock.ingest.rejected_lines import list_rejected
from penstock.lake.catalog import current
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.verification import verify
from tests.support.lakes import HandLake, hand_lake, make_event

START = b'{"session_id":"s","ts":1795219200000000,"type":"session_start","payload":'
NASTY = [
    b"not json",
    b"[]",
    b"{}",
    b'{"session_id":"s","ts":99999999999999999999,"type":"x_a","payload":{}}',
    b'{"session_id":"s","ts":9223372036854775807,"type":"x_a","payload":{}}',
    b'{"session_id":"s","ts":-1,"type":"x_a","payload":{}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"x_a","payload":{"a":"\xff"}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"x_a","payload":{"a":1e999}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"x_a","payload":{"a":"\\ud800"}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"x_a","event_id":"a","payload":{"a":"\xff"}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"x_a","event_id":"b","payload":{"a":1e999}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"edit","payload":"text"}',
    b'{"session_id":"s","ts":1795219200000000,"type":"x_a","payload":{"a":' + b"[" * 5000 + b"]}}",
    b'{"session_id":"s","ts":1795219200000000,"type":"x_a","payload":'
    + b'{"a":' * 3000
    + b"1"
    + b"}" * 3001,
    START + b"[]}",
    START + b'{"consent":"maybe"}}',
    START + b'{"consent":7}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"tool_result","payload":{"ok":1e999}}',
    b'{"session_id":"s","ts":1795219200000000,"type":"model_call","payload":{"usage":{"prompt":1e400}}}',
]


def put(lake: HandLake, lines: list[bytes]) -> None:
    """Straight into the log, past the gateway."""
    counts = Counter("by-hand" if b"by-hand" in line else "" for line in lines)
    header = FrameHeader(
        kind="events", tenant="default", received_us=lake.clock.now_us(), counts=dict(counts)
    )
    lake.lake.log.append({0: [encode_frame(Frame(header, b"\n".join(lines)))]})


def test_each_such_line_is_rejected_or_stored_and_its_neighbours_are_stored(lake: HandLake) -> None:
    for number, nasty in enumerate(NASTY):
        good = [json.dumps(make_event("good", 2 * number + i)).encode() for i in (0, 1)]
        put(lake, [good[0], nasty, good[1]])
        lake.writer().drain()
    sessions: Counter[str] = Counter()
    for (_, session, _), count in lake.stored().items():
        sessions[session] += count
    kept = {entry.raw for entry in list_rejected(lake.lake, 100)}
    assert kept <= set(NASTY)
    assert len(kept) + sessions["s"] == len(NASTY)
    assert sessions["good"] == 2 * len(NASTY)
    assert lake.rows("select count(*) as n from events where session_id = 'good'")
    assert verify(lake.lake).findings == []
    assert read_ledger(lake.lake).discrepancies == []


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
scalars |= st.sampled_from(["", "\0", "\ud800", "no_train", "1e999"])
flat = st.lists(scalars, max_size=3) | st.dictionaries(st.text(), scalars, max_size=3)
nested = st.lists(flat, max_size=3) | st.dictionaries(st.text(), flat, max_size=3)
json_values = scalars | flat | nested
FIELDS = ["session_id", "ts", "type", "payload", "seq", "event_id", "source", "source_key", "extra"]
KINDS = ["session_start", "session_end", "user_message", "model_call", "tool_result", "edit"]
KINDS += ["file_observed", "feedback", "x_own", "compaction", "error"]
NAMES = ["consent", "text", "usage", "prompt", "ok", "kind", "value", "reason", "client", "path"]
payloads = st.dictionaries(st.sampled_from(NAMES) | st.text(), json_values, max_size=4)
near_events = st.fixed_dictionaries(
    {
        "session_id": st.just("s") | st.text(min_size=1),
        "ts": st.just(1_795_219_200_000_000) | st.integers() | st.datetimes().map(str),
        "type": st.sampled_from(KINDS),
        "payload": payloads,
    },
    optional={"extra": json_values, "seq": json_values, "event_id": st.text(), "own": json_values},
)


def test_whatever_the_gateway_accepts_can_be_stored_and_read(tmp_path: Path) -> None:
    with hand_lake(tmp_path, rejected_ratio_max=1.0) as lake:

        @settings(max_examples=20, deadline=None)
        @given(
            st.lists(
                near_events | st.dictionaries(st.sampled_from(FIELDS), json_values), max_size=8
            )
        )
        def check(values: list[object]) -> None:
            before = sum(lake.stored().values())
            body = "\n".join(json.dumps(value) for value in values).encode()
            accepted = lake.send(body).accepted
            lake.writer().drain()
            assert sum(lake.stored().values()) <= before + accepted

        check()
        lake.rows("select count(*), max(payload), max(extra) from events")
        assert read_ledger(lake.lake).discrepancies == []
        assert not [e for e in list_rejected(lake.lake, 999) if "cannot be stored" in e.reason]


def test_what_was_stored_can_be_read_and_merged_whatever_it_was(lake: HandLake) -> None:
    """A segment that readers choke on would be worse than a line that is refused."""
    for nasty in NASTY:
        put(lake, [nasty])
        lake.writer().drain()
    segments = current(lake.lake.database).segments
    merge(lake.lake, segments)
    rows = lake.rows("select type, payload, extra, epoch_us(ts) as us from events")
    assert len(rows) == sum(one.rows for one in segments)
