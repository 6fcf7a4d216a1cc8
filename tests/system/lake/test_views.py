from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.room.lake.test_views import Row, event, query, summarise, table

_PAYLOADS: dict[str, list[Row]] = {
    "session_start": [{}, {"client": "a", "arm": "x"}, {"client": "b"}, {"consent": "no_train"}],
    "session_end": [{}, {"reason": "crash"}, {"reason": "completed"}],
    "model_call": [{}, {"usage": {"prompt": 1, "completion": 2}}, {"usage": {"prompt": "x"}}],
    "tool_result": [{}, {"ok": True}, {"ok": False}],
    "feedback": [{"kind": "accept"}, {"kind": "thumbs", "value": -1}, {"kind": "comment"}],
    "user_message": [{"text": "x"}],
    "x_other": [{}],
}


_NAMES = st.sampled_from([None, "a", "b", "c"])


@st.composite
def events_of_sessions(draw: st.DrawFn) -> Row:
    # Few moments, so that equal times with unequal values are common.
    kind = draw(st.sampled_from(sorted(_PAYLOADS)))
    return event(
        kind,
        draw(st.sampled_from(_PAYLOADS[kind])),
        at=draw(st.integers(0, 2)),
        session_id=draw(st.sampled_from(["s-1", "s-2"])),
        checkpoint=draw(_NAMES),
        user=draw(_NAMES),
        project=draw(_NAMES),
        source=draw(_NAMES),
        consent=draw(st.sampled_from(["train", "no_train", "unknown"])),
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(events_of_sessions(), st.integers(0, 3)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_parts_merge_to_the_same_sessions_however_events_were_split(
    placed: list[tuple[Row, int]], random: Any
) -> None:
    rows = [row for row, _ in placed]
    split = [[row for row, part in placed if part == n] for n in range(4)]
    parts = [summarise(table(part)) for part in split if part]
    random.shuffle(parts)
    ask = "from sessions order by session_id"
    assert query(ask, rows, parts) == query(ask, rows)
