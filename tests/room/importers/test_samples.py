"""Real sessions in a folder that PENSTOCK_SAMPLE_SESSIONS names: what is in the lake equals what
is in the files, counted apart. Without it these tests are skipped; none of it is in the
repository."""

import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from penstock.lake.lake import open_or_make
from penstock.settings import load_settings
from tests.support.sample_counts import COUNTERS, Count, claude_code_rows, sources_of, whole_rows
from tests.support.session_sources import take

_SAMPLES = os.environ.get("PENSTOCK_SAMPLE_SESSIONS")
_COUNTED = ("user_message", "model_call", "tool_result", "edit")
_EVENTS = "SELECT type, count(*) AS count FROM events GROUP BY type"
_TOKENS = """SELECT
    coalesce(sum(coalesce(payload ->> '$.usage.prompt', payload ->> '$.prompt')::bigint), 0)
        AS prompt,
    coalesce(sum(coalesce(payload ->> '$.usage.completion', payload ->> '$.completion')::bigint), 0)
        AS completion,
    coalesce(sum(json_array_length(payload, '$.tool_calls')), 0) AS tool_call,
    coalesce(sum(json_array_length(payload, '$.tokens.completion_ids')), 0) AS completion_id
FROM events WHERE type IN ('model_call', 'x_run_usage')"""

pytestmark = pytest.mark.skipif(_SAMPLES is None, reason="PENSTOCK_SAMPLE_SESSIONS is not set")


def copied(folder: str) -> Count:
    """Rows of Claude Code that have one id in several files are one event: the first."""
    count: Count = Counter()
    before: set[tuple[str, str]] = set()
    for path in sorted((Path(_SAMPLES or "") / folder).glob("*.jsonl")):
        rows = [row for row in whole_rows(path) if row.get("uuid") and folder == "claude_code"]
        ids = [(row["sessionId"], row["uuid"]) for row in rows]
        again = [row for row, id_ in zip(rows, ids, strict=True) if id_ in before]
        count += claude_code_rows(again)
        before.update(ids)
    return count


@pytest.mark.parametrize("folder", sorted(COUNTERS))
def test_the_lake_holds_what_the_files_hold(folder: str, tmp_path: Path) -> None:
    source = Path(_SAMPLES or "") / folder
    if not source.exists():
        pytest.skip(f"no samples of {folder}")
    sources = sources_of(source.parent, folder)
    counted = sum((counter(path) for path, counter in sources), Counter[str]()) - copied(folder)
    report, summary = take(tmp_path / "data", [source])
    assert (report.unfit, summary.rejected) == ([], 0)
    with closing(open_or_make(load_settings(tmp_path / "data"))) as lake:
        events = {row["type"]: row["count"] for row in lake.query(_EVENTS).arrow().to_pylist()}
        (tokens,) = lake.query(_TOKENS).arrow().to_pylist()
    stored: Counter[str] = Counter({kind: events.get(kind, 0) for kind in _COUNTED})
    stored.update({name: int(value) for name, value in tokens.items()})
    assert +stored == counted
