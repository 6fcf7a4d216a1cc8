"""What a query's errors say: nothing of another tenant's rows, and nothing of what is inside."""

from collections.abc import Iterator

import pytest

from penstock.core.errors import PenstockError
from penstock.lake.query.statement_processes import without_inside
from tests.support.lakes import HandLake, hand_lake, make_event

SECRET = "theirs-alone"
#: Each fails at the first value that it sees, and says the value.
_SPOKEN = [
    "error({})",
    "{}::integer",
    "case when {} like '%theirs%' then error({}) end",
    "regexp_matches('a', {} || '(')",
]
_PLACES = [
    "select count(*) from {view} where {spoken} is null",
    "select {spoken} from {view}",
    "select count(*) filter ({spoken} is not null) from {view}",
    "select * from {view} a join {view} b on {spoken} = 1",
]


@pytest.fixture(scope="module", params=["stored", "fresh"])
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HandLake]:
    """Mine among theirs."""
    with hand_lake(tmp_path_factory.mktemp("data")) as lake:
        write = lake.store if request.param == "stored" else lake.send
        for number in range(3):
            theirs = {"session_id": f"{SECRET}-{number}", "user": SECRET, "project": SECRET}
            rows = [make_event("", n, payload={"text": SECRET}) | theirs for n in range(300)]
            write(rows, tenant="theirs")
        write([make_event(f"s{n}", n, payload={"text": "mine"}, user="me") for n in range(3)])
        yield lake


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("spoken", _SPOKEN)
def test_an_error_shows_no_value_of_another_tenant(lake: HandLake, spoken: str, place: str) -> None:
    """A condition of the user's must never see a row before that of the tenant did."""
    for view, column in (("events", "payload"), ("sessions", '"user"'), ("turns", "session_id")):
        sql = place.format(view=view, spoken=spoken.replace("{}", column))
        sql = sql.replace(column, f"a.{column}") if " join " in sql else sql
        try:
            seen = str(lake.rows(sql))
        except PenstockError as error:
            seen = str(error)
        assert SECRET not in seen, sql


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("IO Error: /data/lake/p/1.parquet is cut off", "IO Error: … is cut off"),
        ("IO Error: /data/lake/p/2.parquet", "IO Error: …/2.parquet"),
        ("IO Error: /data/tmp/77/duckdb_temp_0.tmp", "IO Error: …/duckdb_temp_0.tmp"),
        ("Error: <File object at 0x7f00deadbeef>", "Error: <File object at …>"),
        ("Error: 0x7f00deadbeef is no number", "Error: 0x7f00deadbeef is no number"),
        (
            "INTERNAL Error: no\\n\\nStack Trace:\\n\\n0x1".replace("\\n", "\n"),
            "INTERNAL Error: no",
        ),
    ],
)
def test_paths_addresses_and_stacks_are_not_shown(text: str, shown: str) -> None:
    """What the user wrote himself is."""
    sql = "select '0x7f00deadbeef'" if "number" in text else "select 1"
    assert without_inside(text, sql, ["/data/lake/p/1.parquet", "/data/tmp/77"]) == shown
