"""Running commands as a person does, in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.doors.cli import main
from tests.support.commands import penstock


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(
    data: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Runs `penstock ARGUMENTS` on the test's data directory."""
    monkeypatch.setenv("PENSTOCK_DATA", str(data))

    def run_once(*arguments: str) -> Outcome:
        monkeypatch.setattr("sys.argv", ["penstock", *arguments])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capfdbinary.readouterr()
        return Outcome(status, captured.out.decode(), captured.err.decode())

    return run_once


@pytest.fixture(scope="module")
def filled_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with three events and a rejected line; nobody changes it."""
    folder = tmp_path_factory.mktemp("filled")
    done = penstock("import", str(write_events(folder)), "--data", str(folder / "data"))
    assert done.returncode == 0, done.stderr
    return folder / "data"


@pytest.fixture
def events_file(tmp_path: Path) -> Path:
    return write_events(tmp_path)


def write_events(folder: Path) -> Path:
    """Three events of two sessions, and a line that is none."""
    lines = [
        '{"session_id":"s-1","event_id":"1","ts":"2026-11-21T10:00:00Z","type":"user_message",'
        '"source":"test","project":"p","payload":{"text":"hello"}}',
        '{"session_id":"s-1","event_id":"2","ts":"2026-11-21T10:00:01Z","type":"edit",'
        '"source":"test","project":"p","payload":{"path":"a","before":"","after":"x"}}',
        '{"session_id":"s-2","event_id":"1","ts":1795255200000000,"type":"x_own",'
        '"source":"test","payload":{"any":[1,2]}}',
        '{"session_id":"s-2","ts":"yesterday","type":"x_own","source":"test","payload":{}}',
    ]
    path = folder / "events.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
