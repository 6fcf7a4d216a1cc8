from pathlib import Path

import pytest

from bench.large_lake import large_lake
from penstock.core.settings import MIB, load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.lake import QueryLimitReached
from penstock.lake.lake import open_or_make
from penstock_jobs.shards.selection.session_facts import SnapshotQueries


def test_a_recipe_asks_for_more_sessions_than_fit_into_memory(tmp_path: Path) -> None:
    """The same statement ends at the limit where anybody else asks."""
    sql = "select session_id, checkpoints, client from sessions"
    with large_lake(tmp_path, 2_000_000):
        pass
    little = {"query_memory_bytes_max": 32 * MIB}
    with open_or_make(load_settings(tmp_path, environment={}, flags=little)) as lake:
        with pytest.raises(QueryLimitReached):
            lake.query(sql).arrow()
        rows = SnapshotQueries(lake, None, TENANT_DEFAULT).query(sql)
    assert len(rows["session_id"].unique()) == rows.num_rows > 40_000
