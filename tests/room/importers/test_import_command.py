"""`penstock import` on folders of sessions: what it says, and what it reads again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.claude_code_rows import SESSION, answers, asks, said, write
from tests.support.commands import penstock
from tests.support.session_sources import stored

OTHER = "9a000000-0000-4000-8000-000000000002"
ROWS = [asks(0, "Fix it"), answers(1, "m1", said("Fixed."))]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    projects = tmp_path / "home" / ".claude" / "projects"
    write(projects / "-work-shop", *ROWS)
    mail = [row | {"sessionId": OTHER, "cwd": "/code/mail"} for row in ROWS]
    write(projects / "-work-mail", *mail, name=f"{OTHER}.jsonl")
    return tmp_path / "home"


def report(*arguments: str) -> dict[str, Any]:
    done = penstock("import", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_only_what_changed_is_read_again(home: Path) -> None:
    data = ("--data", str(home / "data"))
    first = report(str(home / ".claude"), *data)
    assert first["formats"]["claude-code"]["sources"] == 2
    assert first["stored"] == 8
    write(home / ".claude/projects/-work-shop", *ROWS, asks(2, "Thanks"))
    second = report(str(home / ".claude"), *data)["formats"]["claude-code"]
    assert (second["sources"], second["unchanged"]) == (1, 1)
    assert report(str(home / ".claude"), *data)["formats"]["claude-code"]["unchanged"] == 2
    assert len(stored(home / "data")) == 9


def test_what_did_not_change_is_not_opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ("--data", str(home / "data"))
    report(str(home / ".claude"), *data)
    opened: list[object] = []

    def refuse(file: object) -> object:
        opened.append(file)
        raise OSError("not to be opened")

    monkeypatch.setattr("penstock_jobs.importers.sources.open_unbuffered", refuse)
    again = report(str(home / ".claude"), *data)["formats"]["claude-code"]
    assert (again["unchanged"], opened) == (2, [])


def test_a_dry_run_says_the_same_and_takes_nothing(home: Path) -> None:
    counted = report(str(home / ".claude"), "--dry-run", "--data", str(home / "data"))
    assert counted["formats"]["claude-code"]["taken"]["model_call"] == 2
    assert not (home / "data").exists()


def test_one_project_alone_leaves_the_others_to_a_later_import(home: Path) -> None:
    data = ("--data", str(home / "data"))
    taken = report(str(home / ".claude"), "--project", "mail", *data)["formats"]["claude-code"]
    assert taken["taken"]["sessions"] == 1
    assert taken["skipped"]["event of another project"]["count"] == 3
    assert report(str(home / ".claude"), *data)["stored"] == 4


def test_what_did_not_change_since_is_left_out(home: Path) -> None:
    data = ("--data", str(home / "data"))
    taken = report(str(home / ".claude"), "--since", "2090-01-01T00:00:00+00:00", *data)
    assert taken["formats"]["claude-code"]["unchanged"] == 2


def test_discover_looks_where_agents_keep_their_sessions(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = report("--discover", "--yes", "--data", str(home / "data"))
    assert found["formats"]["claude-code"]["sources"] == 2
    (home / "new" / ".claude" / "projects").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home / "new"))
    fresh = report("--discover", "--yes", "--data", str(home / "data"))
    assert fresh["formats"] == {}
    (home / "new" / ".codeium" / "windsurf" / "cascade").mkdir(parents=True)
    seen = penstock("import", "--discover", "--yes", "--data", str(home / "data"))
    assert "Windsurf encrypts its conversations" in seen.stderr
    monkeypatch.setenv("HOME", str(home / "nowhere"))
    nothing = penstock("import", "--discover", "--data", str(home / "data"))
    assert nothing.returncode == 2
    assert penstock("import", "--data", str(home / "data")).returncode == 2


def test_events_and_sessions_may_lie_side_by_side(home: Path) -> None:
    event = {"session_id": "s", "ts": 1_795_219_200_000_000, "type": "user_message"}
    events = home / ".claude" / "events.jsonl"
    events.write_text(json.dumps(event | {"payload": {"text": "Hi"}}) + "\n")
    (home / ".claude" / "settings.json").write_text('{"theme": "dark"}')
    taken = report(str(home / ".claude"), "--data", str(home / "data"))
    assert taken["accepted"] == 9
    assert taken["unknown"][".json"]["count"] == 1
    assert taken["rejected"] == 0


def test_an_unknown_format_names_the_known_ones(home: Path) -> None:
    done = penstock("import", str(home), "--format", "claud", "--data", str(home / "data"))
    assert done.returncode == 2
    assert "claude-code" in done.stderr
    strange = home / "strange"
    strange.mkdir()
    (strange / "talk.jsonl").write_text('{"who": "me", "said": "hi"}\n' * 2)
    told = penstock("import", str(strange), "--data", str(home / "data")).stderr
    assert "Read: 1 × .jsonl. Known formats: events, acp, aider, amp," in told
    assert "session_id" not in told
    other = penstock("import", str(home), "--format", "codex", "--data", str(home / "data"))
    assert "has no file of the format codex" in other.stderr


def test_watching_takes_what_is_appended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter(range(3))

    def sleep(_seconds: float) -> None:
        number = next(rounds)
        if number == 2:
            raise KeyboardInterrupt
        write(home / ".claude/projects/-work-shop", *ROWS, *[asks(2, "More")] * number)

    monkeypatch.setattr("penstock_jobs.importers.import_run.time.sleep", sleep)
    data = str(home / "data")
    done = penstock("import", str(home / ".claude"), "--watch", "--data", data)
    assert done.returncode == 0, done.stderr
    assert len(stored(home / "data")) == 9
    assert {row[0] for row in stored(home / "data")} == {SESSION, OTHER}
