"""A filter never says that a session is not there when it is."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.events.event import session_key
from penstock.lake.segments import make_filter, may_hold, read_filter, session_prefixes

sessions = st.sets(st.builds(session_key, st.text(), st.text()), max_size=200)


@given(sessions, sessions)
def test_no_session_that_is_there_is_missed(held: set[str], others: set[str]) -> None:
    stored = read_filter(make_filter(held))
    assert may_hold(stored, session_prefixes(sorted(held))).all()
    hits = may_hold(stored, session_prefixes(sorted(held | others)))
    assert hits.sum() >= len(held)


def test_hardly_any_other_session_is_taken_for_one_that_is_there() -> None:
    stored = read_filter(make_filter(f"held-{number}" for number in range(10_000)))
    wrong = may_hold(
        stored, session_prefixes([f"other-{number}" for number in range(100_000)])
    ).sum()
    assert wrong <= 5  # one in some 400,000
    assert not may_hold(read_filter(make_filter([])), session_prefixes(["s"])).any()
