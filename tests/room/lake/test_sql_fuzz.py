"""What ends the engine is refused before the engine sees it."""

from collections.abc import Iterator

import duckdb
import pytest

from penstock.lake.errors import QueryRefused
from penstock.lake.query_guard import check_query
from tests.support.lake.sql_fuzz import FAULTS, called, listed_faults, run_parts


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": "1"}) as connection:
        yield connection


@pytest.mark.parametrize("sql", listed_faults())
def test_the_guard_refuses_what_ends_the_engine(
    connection: duckdb.DuckDBPyConnection, sql: str
) -> None:
    with pytest.raises(QueryRefused):
        check_query(connection, sql, frozenset({"t"}))


def test_the_list_is_of_the_engine_that_is_used() -> None:
    """With another one: `python -m tests.support.lake.sql_fuzz --write`, and docs/decisions.md."""
    assert f"DuckDB {duckdb.__version__}," in FAULTS.read_text(encoding="utf-8")


@pytest.mark.study
def test_nothing_that_the_guard_lets_through_ends_the_engine() -> None:
    """Every function and operator with every kind of argument, each in a process that it may
    end."""
    results = run_parts(2)
    assert sum(result.get("tried", 0) for result in results) > 300_000
    faults = [result for result in results if "sql" in result]
    assert not [fault for fault in faults if fault["allowed"]]
    new = {called(fault["sql"]) for fault in faults} - set(map(called, listed_faults()))
    assert not new, "the list is old"
