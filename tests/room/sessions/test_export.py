"""Sessions in common forms: readable by those forms' own readers, and the same when they return."""

import json
from pathlib import Path
from typing import Any

import msgspec

from penstock.lake.client import open_client
from penstock_jobs.importers.penstock_documents import penstock_trajectory
from penstock_jobs.sessions.export import atif_document, export_sessions
from penstock_jobs.simulator.production import Production
from tests.support.session_sources import FIXTURES, take

Event = dict[str, Any]


def simulated(seed: int, count: int) -> list[list[Event]]:
    """Sessions of the simulator, as the view `events` has them."""
    sessions = []
    for some in Production(seed).sessions(count):
        for session in some:
            events = {}
            for _, _, line in session.lines:
                event = msgspec.json.decode(line)
                events[event["event_id"]] = event
            ordered = sorted(events.values(), key=lambda event: (event["ts"], event["seq"]))
            sessions.append(ordered)
    return sessions


def by_id(events: list[Any]) -> dict[str, Event]:
    plain = [msgspec.to_builtins(event) for event in events]
    return {event["event_id"]: event for event in plain}


def test_what_somebody_changed_in_a_document_counts() -> None:
    (events,) = simulated(3, 1)[:1]
    document = atif_document(events)
    answer = next(step for step in document["steps"] if step["source"] == "agent")
    answer["message"] = "redacted"
    name = answer["extra"]["penstock"]["event_id"]
    assert by_id(penstock_trajectory(document) or [])[name]["payload"]["text"] == "redacted"


def test_a_query_says_which_sessions_leave(tmp_path: Path) -> None:
    take(tmp_path / "data", [FIXTURES / "atif"])
    query = "SELECT session_id FROM events WHERE type = 'edit'"
    with open_client(tmp_path / "data", None, "default") as client:
        report = export_sessions(client, query, "messages", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert report.sessions == len(rows) == 2
    roles = {message["role"] for row in rows for message in row["messages"]}
    assert roles == {"system", "user", "assistant", "tool"}
