"""Shards of what a proxy recorded."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.ingest.recorder.recorder import Recorder
from tests.support.commands import penstock
from tests.support.recording_proxy import RecordingProxy
from tests.support.waiting import eventually

_MINUTE = 60.0
_RECIPE = """
name = "captured"
query = "all.sql"
[tokens]
source = "engine"
max_length = 131072
[reward]
definition = "thumbs.toml"
pending = "drop"
[exclude]
consent = "train"
"""
#: Work without edits could still come for a while, by the default definition.
_DEFINITION = """
name = "thumbs"
[[reward]]
name = "explicit_feedback"
weight = 1.0
"""


def stored(proxy: RecordingProxy, events: int, service: str, key: str, spool: Path) -> None:
    """Waits until the service has so many; then somebody is content with both sessions."""
    eventually(lambda: _is_stored(proxy.status(), events))
    praise(service, key, spool, "streamed", "whole")


def praise(service: str, key: str, spool: Path, *sessions: str) -> None:
    with Recorder(service, key, spool=spool) as recorder:
        for session in sessions:
            talk = recorder.session(session)
            talk.feedback("m", "thumbs", "up")
            talk.end()  # or a run of rewards would wait until it rests
        assert recorder.flush(_MINUTE)


def _is_stored(status: dict[str, Any], events_count: int) -> bool:
    events = status["events"]
    return events["recorded"] == events["sent"] == events_count and not events["rejected"]


def shard_rows(data: Path, here: Path) -> list[dict[str, Any]]:
    (here / "all.sql").write_text("select session_id from sessions order by session_id")
    (here / "recipe.toml").write_text(_RECIPE)
    (here / "thumbs.toml").write_text(_DEFINITION)
    ran = penstock("rewards", "run", "--definition", str(here / "thumbs.toml"), "--data", str(data))
    assert ran.returncode == 0, ran.stderr
    built = penstock("shards", "build", str(here / "recipe.toml"), "--data", str(data))
    assert built.returncode == 0, built.stderr
    [part] = (data / "lake" / "shards").rglob("part-00000.parquet")
    rows = pq.ParquetFile(part).read().to_pylist()
    return sorted(rows, key=lambda row: str(row["session_id"]))
