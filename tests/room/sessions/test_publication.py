"""Sessions as a data set for the Hub: who consented, what the card says, and the way back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.access.privacy.consents import decide_consent
from penstock.backends.execution.calls import InlineExecutor
from penstock.core.errors import InvalidInput
from penstock.lake.client import LocalClient, open_client
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.sessions.publication import NothingToPublish, public_id, publish_sessions
from tests.support.lakes import hand_lake, make_event
from tests.support.session_sources import events_of

Event = dict[str, Any]
SECRET = "[SECRET:aws_key:0123456789abcdef]"
ALL = "SELECT session_id FROM sessions"


def session(name: str, consent: str | None = "train", **fields: Any) -> list[Event]:
    """A question, a call with its result, an answer, and a message copied from elsewhere."""
    call = {"id": "c1", "name": "read", "arguments": '{"path": "notes.txt"}'}
    told: list[tuple[str, Event]] = [
        ("session_start", {"client": "shop-agent", "client_version": "2", "consent": consent}),
        ("user_message", {"text": "old words", "is_copied_context": True}),
        ("user_message", {"text": f"what is\nin notes.txt? {SECRET}"}),
        ("model_call", {"thinking": "It wants the file.", "tool_calls": [call], "model": "small"}),
        ("tool_result", {"call_id": "c1", "output": "milk"}),
        ("model_call", {"text": "Milk.", "model": "small"}),
    ]
    return [
        make_event(name, number, kind, payload=payload, **fields)
        for number, (kind, payload) in enumerate(told)
    ]


@contextmanager
def lake_of(data: Path, *sessions: list[Event]) -> Iterator[LocalClient]:
    with hand_lake(data) as lake:
        lake.store([event for events in sessions for event in events])
    with open_client(data, None, "default") as client:
        assert isinstance(client, LocalClient)
        yield client


def test_only_sessions_of_people_who_consented_leave(tmp_path: Path) -> None:
    sessions = [
        session("a"),
        session("b", "no_train"),
        session("c", None),
        session("d", None, project="open"),
        session("e", user="u-7"),
    ]
    with lake_of(tmp_path / "data", *sessions) as client:
        database = client.lake.database
        decide_consent(database, "default", "project", "open", "train", reason="", by="t")
        decide_consent(database, "default", "user", "u-7", "no_train", reason="", by="t")
        report = publish_sessions(client, ALL, "cc-by-4.0", tmp_path / "out")
    assert report.left_out == {"consent_denied": 2, "consent_unknown": 1}
    written = {path.stem for path in (tmp_path / "out" / "sessions").iterdir()}
    assert written == {public_id("a"), public_id("d")}


def test_the_card_says_what_is_in_the_data_set(tmp_path: Path) -> None:
    with lake_of(tmp_path / "data", session("a"), session("b", "no_train")) as client:
        publish_sessions(client, ALL, "apache-2.0", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for told in (
        "license: apache-2.0\n", "- format:agent-traces\n", "- n<1K\n", "path: 'sessions/*.jsonl'",
        "| shop-agent | 1 |", "| small | 1 |", "| consent_denied | 1 |", "| SECRET:aws_key | 1 |",
    ):  # fmt: skip
        assert told in card


def test_nothing_private_leaves_beside_the_messages(tmp_path: Path) -> None:
    private = session("a", user="ann@example.com", project="secret-project")
    with lake_of(tmp_path / "data", private) as client:
        publish_sessions(client, ALL, "other", tmp_path / "out")
    for path in (tmp_path / "out").rglob("*.*"):
        content = path.read_bytes()
        assert b"ann@example.com" not in content
        assert b"secret-project" not in content


def test_a_data_set_comes_back_as_the_same_conversations(tmp_path: Path) -> None:
    with lake_of(tmp_path / "data", session("a")) as client:
        publish_sessions(client, ALL, "other", tmp_path / "out")
    (file,) = (tmp_path / "out" / "sessions").iterdir()
    assert json.loads(file.read_text().splitlines()[0]) == {
        "type": "session",
        "harness": "shop-agent",
        "id": public_id("a"),
        "name": f"what is in notes.txt? {SECRET}",
        "client_version": "2",
    }
    start, asked, call, result, answer = events_of(tmp_path / "out")
    assert start["payload"]["client"] == "shop-agent"
    assert asked["payload"]["text"] == f"what is\nin notes.txt? {SECRET}"
    assert call["payload"]["thinking"] == "It wants the file."
    assert call["payload"]["tool_calls"][0]["name"] == "read"
    assert (result["payload"]["call_id"], result["payload"]["output"]) == ("c1", "milk")
    assert (answer["payload"]["text"], answer["payload"]["model"]) == ("Milk.", "small")


def test_signals_are_a_row_a_message(tmp_path: Path) -> None:
    with lake_of(tmp_path / "data", session("a")) as client:
        publish_sessions(client, ALL, "other", tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "signals.parquet").to_pylist()
    assert [(row["session_id"], row["turn"]) for row in rows] == [
        (public_id("a"), 1),
        (public_id("a"), 2),
    ]
    assert {row["label"] for row in rows} == {None}


def test_signals_are_never_counts_of_survival(tmp_path: Path) -> None:
    with lake_of(tmp_path / "data", session("a")) as client:
        for name in ("default", "survival"):
            run(client.lake, InlineExecutor(), RunRequest(find_definition(name)))
        publish_sessions(client, ALL, "other", tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "signals.parquet").to_pylist()
    names = {reward["name"] for row in rows for reward in row["rewards"] or ()}
    assert "length_calls" in names


@pytest.mark.parametrize("consent", ["no_train", None])
def test_without_consent_no_folder_is_made(tmp_path: Path, consent: str | None) -> None:
    with lake_of(tmp_path / "data", session("a", consent)) as client:
        with pytest.raises(NothingToPublish, match="1 sessions"):
            publish_sessions(client, ALL, "other", tmp_path / "out")
        with pytest.raises(InvalidInput, match="look like cc-by"):
            publish_sessions(client, ALL, "CC BY 4.0", tmp_path / "out")
    assert not (tmp_path / "out").exists()
