"""What ends the engine is refused before the engine sees it."""

from collections.abc import Iterator

import duckdb
import pytest

from penstock.lake.errors import QueryRefused
from penstock.lake.query_guard import check_query
from tests.support.lake.sql_fuzz import FAULTS, listed_faults


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
