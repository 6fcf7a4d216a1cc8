"""Which rows are shown and drawn, and how."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.doors.console.service_pages import as_of_text, plot_of
from penstock.lake.query.row_formats import Plot, ShownRows, show_rows


def shown(table: pa.Table) -> ShownRows:
    return show_rows(table.to_reader(2))


def drawn(table: pa.Table) -> str:
    plot = shown(table).plot
    assert isinstance(plot, Plot)
    return str(plot_of(plot))


def test_texts_with_numbers_are_bars() -> None:
    chart = drawn(pa.table({"type": ["a", None], "events": [3, 4]}))
    assert "events by type" in chart
    assert chart.count('class="bar') == 2


def test_times_with_numbers_are_lines() -> None:
    hours = [datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in (2, 1, 3)]
    table = pa.table({"hour": hours, "sessions": [2, 1, 3], "edits": [None, 5.0, 7.0]})
    assert drawn(table).count('class="line') == 3  # a gap parts one of them


@pytest.mark.parametrize(
    "table", [{"a": [1, 2], "b": [3, 4]}, {"a": ["x", "y"]}, {"a": ["x"], "b": [1]}]
)
def test_what_has_no_form_is_not_drawn(table: dict[str, list[object]]) -> None:
    assert shown(pa.table(table)).plot is None


def test_long_cells_are_cut_and_nulls_told_apart() -> None:
    rows = shown(pa.table({"a": ["x" * 1000, None, ""], "b": [1.5, 2.0, None]}))
    assert [len(row[0] or "") for row in rows.rows] == [301, 0, 0]
    assert [row[0] is None for row in rows.rows] == [False, True, False]
    assert rows.numeric == [False, True]


def test_all_rows_are_counted_and_the_first_are_shown() -> None:
    rows = shown(pa.table({"a": range(5_000), "b": range(5_000)}))
    assert (rows.count, len(rows.rows), rows.plot) == (5_000, 200, None)


def test_of_a_list_that_is_long_the_beginning_is_read() -> None:
    ones = pa.array([True]).take(pa.array([0] * 1_000_000))
    structs = pa.StructArray.from_arrays([ones], ["a"])
    rows = shown(pa.table({"a": pa.ListArray.from_arrays([0, 1_000_000], structs)}))
    assert str(rows.rows[0][0]).startswith("[{'a': True}, {'a': True}")
    assert len(str(rows.rows[0][0])) == 301


def test_digits_are_a_snap_and_all_else_a_name_or_a_time() -> None:
    assert [as_of_text(text) for text in ("12", "2026-11-21", None)] == [12, "2026-11-21", None]
