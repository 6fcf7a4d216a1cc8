"""Which rows are drawn, and how."""

from datetime import UTC, datetime

import pyarrow as pa

from penstock.doors.console.query_pages import as_of_text, plot_of, shown_rows


def test_texts_with_numbers_are_bars() -> None:
    drawn = str(plot_of(pa.table({"type": ["a", None], "events": [3, 4]})))
    assert "events by type" in drawn
    assert drawn.count('class="bar') == 2


def test_times_with_numbers_are_lines() -> None:
    hours = [datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in (2, 1, 3)]
    table = pa.table({"hour": hours, "sessions": [2, 1, 3], "edits": [None, 5.0, 7.0]})
    assert str(plot_of(table)).count('class="line') == 3  # a gap parts one of them


def test_what_has_no_form_is_not_drawn() -> None:
    assert plot_of(pa.table({"a": [1, 2], "b": [3, 4]})) is None
    assert plot_of(pa.table({"a": ["x", "y"]})) is None
    assert plot_of(pa.table({"a": ["x"], "b": [1]})) is None


def test_long_cells_are_cut_and_nulls_told_apart() -> None:
    shown = shown_rows(
        pa.table({"a": ["x" * 1000, None, ""], "b": [1.5, 2.0, None]}), 7, cut_off=False
    )
    assert [len(row[0] or "") for row in shown.rows] == [301, 0, 0]
    assert [row[0] is None for row in shown.rows] == [False, True, False]
    assert shown.numeric == [False, True]


def test_digits_are_a_snap_and_all_else_a_name_or_a_time() -> None:
    assert [as_of_text(text) for text in ("12", "2026-11-21", None)] == [12, "2026-11-21", None]
