"""DuckDB groups the same events by session, or copies them as they are: what any builder has to do
at least. It parses no payload."""

from pathlib import Path
from typing import Any

import duckdb

from bench.rivals.spending import answer_questions

_GROUPED = """
    select session_id, list(struct_pack(ts, seq, type, payload) order by ts, seq) as events
    from events group by session_id
"""


def _build(question: dict[str, Any]) -> int:
    to = Path(question["folder"]) / f"duckdb-{question['round']}.parquet"
    with duckdb.connect(config={"threads": 1}) as connection:
        events = connection.read_parquet(question["segments"])  # noqa: F841 - named in SQL
        sql = _GROUPED if question["grouped"] else "select * from events"
        connection.sql(sql).write_parquet(str(to), compression="zstd")
    to.unlink()
    return int(question["sessions"])


if __name__ == "__main__":
    answer_questions(_build)
