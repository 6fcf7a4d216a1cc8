"""Sessions of others, in a folder that PENSTOCK_SAMPLE_SESSIONS names: a count that shares no code
with the importers says the same as the events of each source. None of it is in the repository."""

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.sample_counts import COUNTERS, Count, of_opencode, sources_of
from tests.support.session_sources import events_of, report_of

SAMPLES = Path(os.environ.get("PENSTOCK_SAMPLE_SESSIONS", "/nowhere"))
_SOURCES = [source for folder in COUNTERS for source in sources_of(SAMPLES, folder)]
_NAMES = [str(path.relative_to(SAMPLES)) for path, _counter in _SOURCES]
#: Files that hold no session: about the samples, facts beside sessions, a database as text.
_OTHERS = ("README.md", "manifest.json", "licenses/*", "*/conversation_base_state.json", "*.sql")

pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="PENSTOCK_SAMPLE_SESSIONS names no folder"
)


def counted(path: Path) -> Count:
    """What the lake has, by the events."""
    counts: Count = Counter()
    for event in events_of(path):
        payload, kind = event["payload"], event["type"]
        if kind in ("user_message", "model_call", "tool_result", "edit"):
            counts[kind] += 1
        usage = payload if kind == "x_run_usage" else payload.get("usage") or {}
        counts["tool_call"] += len(payload.get("tool_calls") or ())
        counts["prompt"] += usage.get("prompt") or 0
        counts["completion"] += usage.get("completion") or 0
        tokens = payload.get("tokens") if kind == "model_call" else None
        counts["completion_id"] += len((tokens or {}).get("completion_ids") or ())
    return +counts


@pytest.mark.parametrize("at", range(len(_SOURCES)), ids=_NAMES)
def test_events_are_counted_as_by_hand(at: int) -> None:
    path, counter = _SOURCES[at]
    assert counted(path) == +counter(path)
    assert report_of(path).unfit == []


def test_database_told_as_text_is_counted_as_by_hand(tmp_path: Path) -> None:
    for text in SAMPLES.glob("registry/opencode/*.sql"):
        path = tmp_path / "opencode.db"
        with closing(sqlite3.connect(path)) as database:
            database.executescript(text.read_text())
        assert counted(path) == +of_opencode(path) == Counter(user_message=1, model_call=1)


def test_each_file_is_of_a_source() -> None:
    taken = [path for path, _counter in _SOURCES]
    files = [path for path in SAMPLES.rglob("*") if path.is_file()]
    left = [file for file in files if not any(file.is_relative_to(path) for path in taken)]
    names = [file.relative_to(SAMPLES) for file in left]
    assert [name for name in names if not any(map(name.match, _OTHERS))] == []
