import json
from contextlib import closing
from pathlib import Path
from typing import Any

import atif
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake.client import open_client
from penstock.lake.lake import open_or_make
from penstock_jobs.importers.penstock_documents import penstock_session, penstock_trajectory
from penstock_jobs.sessions.export import SessionForm, atif_document, export_sessions, messages_row
from tests.room.sessions.test_export import by_id, simulated
from tests.support.lakes import body_of, hand_lake
from tests.support.session_sources import FIXTURES, take

ALL = "SELECT session_id FROM sessions"


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_simulated_sessions_come_back_as_they_were(seed: int) -> None:
    for events in simulated(seed, 3):
        document = json.loads(json.dumps(atif_document(events)))
        atif.Trajectory.model_validate(document)
        assert by_id(penstock_trajectory(document) or []) == by_id(events)
        row = json.loads(json.dumps(messages_row(events)))
        assert by_id(penstock_session(row) or []) == by_id(events)


@pytest.mark.parametrize("form", ["atif", "messages"])
def test_a_lake_comes_back_from_its_export(form: SessionForm, tmp_path: Path) -> None:
    with hand_lake(tmp_path / "first") as lake:
        lake.store(body_of(event for events in simulated(5, 4) for event in events))
    take(tmp_path / "first", [FIXTURES / "nemo-gym", FIXTURES / "opencode", FIXTURES / "atif"])
    out = tmp_path / ("out" if form == "atif" else "out.jsonl")
    with open_client(tmp_path / "first", None, "default") as client:
        report = export_sessions(client, ALL, form, out)
        with pytest.raises(InvalidInput):
            export_sessions(client, ALL, form, out)
    take(tmp_path / "second", [out])
    assert stored(tmp_path / "second") == stored(tmp_path / "first")
    assert report.events == len(stored(tmp_path / "first"))


def stored(data: Path) -> list[tuple[Any, ...]]:
    sql = """SELECT session_id, epoch_us(ts), seq, type, event_id, source, source_key, checkpoint,
        "user", project, payload FROM events ORDER BY session_id, event_id, type"""
    with closing(open_or_make(load_settings(data))) as lake:
        rows = lake.query(sql).arrow().to_pylist()
    return [(*list(row.values())[:-1], json.loads(row["payload"])) for row in rows]
