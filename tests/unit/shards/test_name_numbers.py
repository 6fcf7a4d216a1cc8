"""Names as numbers: bisection finds what a table of hashes would, and order stays order."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_jobs.shards import name_numbers
from penstock_jobs.shards.name_numbers import (
    NAMES,
    numbered,
    numbers_in,
    places_among,
    texts_of,
)

TEXTS = st.lists(st.one_of(st.none(), st.text("aé☃b", max_size=3)), max_size=12)


@settings(max_examples=30)
@given(TEXTS, TEXTS)
def test_names_are_found_where_they_are(known: list[str | None], sought: list[str | None]) -> None:
    names = sorted({name for name in known if name is not None}, key=str.encode)
    places = places_among(pa.array(names, pa.string()), pa.array(sought, pa.string()))
    assert places.tolist() == [names.index(name) if name in names else -1 for name in sought]


def test_many_are_found_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_numbers, "_AT_ONCE", 2)
    sought = pa.chunked_array([["c", "x", "a"], ["b"], []], pa.string())
    assert places_among(pa.array(["a", "b", "c"]), sought).tolist() == [2, -1, 0, 1]


@settings(max_examples=30)
@given(TEXTS)
def test_numbers_are_in_the_order_of_names(texts: list[str | None]) -> None:
    column = numbered(pa.chunked_array([texts[:4], texts[4:]], pa.string()))
    assert column.type == NAMES
    assert column.to_pylist() == texts
    assert texts_of(pa.chunked_array([column])).to_pylist() == texts
    names = column.dictionary.to_pylist()
    assert names == sorted({text for text in texts if text is not None}, key=str.encode)
    expected = [-1 if text is None else names.index(text) for text in texts]
    assert numbers_in(column).tolist() == expected
