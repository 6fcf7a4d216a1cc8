"""When what was gathered is written."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.ingest.flush import is_due
from penstock.ingest.settings import IngestSettings

LIMITS = IngestSettings(flush_rows_max=100, flush_bytes_max=1000, flush_seconds_max=2.0)


def test_each_limit_alone_is_enough() -> None:
    assert is_due(LIMITS, 100, 1, 0)
    assert is_due(LIMITS, 1, 1000, 0)
    assert is_due(LIMITS, 1, 1, 2.0)


@given(st.integers(0, 99), st.integers(0, 999), st.floats(0, 1.99))
def test_below_all_limits_nothing_is_written(rows: int, size: int, age_s: float) -> None:
    assert not is_due(LIMITS, rows, size, age_s)


@given(st.floats(0, 1e9))
def test_nothing_gathered_is_never_written(age_s: float) -> None:
    assert not is_due(LIMITS, 0, 0, age_s)
