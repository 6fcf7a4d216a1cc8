"""Each hook as its agent runs it: a process for each event, against a running service."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.hook_rules import PAGE, hook_rules_page
from tests.support.hooks import inputs
from tests.support.hooks.inputs import AFTER, BEFORE, Row
from tests.support.planted_secrets import SHAPED, letters, private_key
from tests.support.repository import ROOT

HOOKS = ROOT / "examples" / "hooks"


@dataclass
class Machine:
    """Where an agent works: its hooks, and the variables that they see."""

    folder: Path
    variables: dict[str, str]

    def run(self, script: str, told: Row | str, *arguments: str) -> str:
        given = told if isinstance(told, str) else json.dumps(told)
        done = subprocess.run(
            [sys.executable, str(HOOKS / script), *arguments],
            input=given, env=self.variables, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def send(self) -> int:
        command = [sys.executable, str(HOOKS / "delivery.py")]
        return subprocess.run(command, env=self.variables, check=False, timeout=120).returncode

    def problems(self) -> str:
        log = self.spool / "problems.log"
        return log.read_text() if log.exists() else ""

    @property
    def spool(self) -> Path:
        return Path(self.variables["XDG_STATE_HOME"], "penstock", "hooks")

    def waiting(self) -> list[Path]:
        return sorted(self.spool.glob("*.ndjson"))


@pytest.fixture
def machine(service: Any, tmp_path: Path) -> Machine:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/fix/load\n")
    return Machine(folder, {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PENSTOCK_URL": service.server.url,
        "PENSTOCK_KEY": service.keys["ingest"],
        "PENSTOCK_CONSENT": "train",
    })  # fmt: skip


def stored(service: Any, session: str) -> list[Row]:
    sql = f"select type, payload, project from events where session_id = '{session}' order by ts"
    rows = service.query(sql)
    for row in rows:
        held = row["payload"]
        row["payload"] = json.loads(held) if isinstance(held, str) else held
    return list(rows)


def of_type(rows: list[Row], kind: str) -> list[Row]:
    return [row["payload"] for row in rows if row["type"] == kind]


def kinds(rows: list[Row]) -> dict[str, int]:
    return dict(Counter(row["type"] for row in rows))


@pytest.mark.smoke
def test_claude_code(service: Any, machine: Machine) -> None:
    for told in inputs.claude_code(str(machine.folder)):
        assert machine.run("claude_code.py", told) == ""  # what it said would be context
    assert machine.send() == 0
    rows = stored(service, "claude-1")
    assert kinds(rows) == {
        "session_start": 1, "user_message": 2, "tool_result": 5, "edit": 2, "file_observed": 1,
        "model_call": 1, "session_end": 1,
    }  # fmt: skip
    [begun] = of_type(rows, "session_start")
    assert (begun["client"], begun["consent"], begun["branch"]) == (
        "claude-code", "train", "fix/load")  # fmt: skip
    assert {row["project"] for row in rows} == {"shop"}
    changed, made = of_type(rows, "edit")
    assert (changed["before"], changed["after"], changed["call_id"]) == (BEFORE, AFTER, "toolu_3")
    assert (made["path"], made["before"], made["after"]) == (
        f"{machine.folder}/new.py", "", "n = 1\n")  # fmt: skip
    results = of_type(rows, "tool_result")
    assert [row["ok"] for row in results] == [True, True, True, True, False]
    assert (results[0]["output"], results[0]["arguments"]) == ("app.py", {"command": "ls"})
    assert of_type(rows, "file_observed") == [{"path": f"{machine.folder}/b.py", "text": "b = 1\n"}]


def test_a_subagent_of_claude_code_has_a_session_of_its_own(service: Any, machine: Machine) -> None:
    common = {"session_id": "claude-2", "cwd": str(machine.folder), "agent_id": "a7"}
    machine.run("claude_code.py", common | {"hook_event_name": "SubagentStart"})
    said = {"hook_event_name": "SubagentStop", "last_assistant_message": "Found it."}
    machine.run("claude_code.py", common | said)
    machine.send()
    rows = stored(service, "claude-2.agent-a7")
    assert kinds(rows) == {"session_start": 1, "model_call": 1}
    assert of_type(rows, "session_start")[0]["parent_session"] == "claude-2"


def test_secrets_are_masked_before_they_are_on_disk(machine: Machine) -> None:
    machine.variables["PENSTOCK_URL"] = "http://127.0.0.1:9"  # nobody takes it from the spool
    secrets = [made(random.Random(3)) for made in (*SHAPED, private_key)]
    password = letters(random.Random(3), 9) + "!7aB"
    for number, secret in enumerate([*secrets, secrets[0]]):
        told = {"session_id": "masked", "hook_event_name": "UserPromptSubmit", "cwd": "/shop"}
        text = f'use {secret} and {{"db_password": "{password}"}} {number}'
        machine.run("claude_code.py", told | {"prompt": text})
    assert len(machine.waiting()) == len(secrets) + 1
    kept = "".join(path.read_text() for path in machine.waiting())
    for secret in secrets:
        assert json.dumps(secret)[1:-1] not in kept
    assert password not in kept
    [key] = set(re.findall(r"\[SECRET:aws_key:[0-9a-f]{16}\]", kept))
    assert kept.count(key) == 2
    assert (machine.spool / "redaction.key").stat().st_mode & 0o777 == 0o600


def test_the_patterns_of_hooks_are_those_of_the_rules() -> None:
    assert PAGE.read_text(encoding="utf-8") == hook_rules_page()


def test_codex(service: Any, machine: Machine) -> None:
    for told in inputs.codex(str(machine.folder)):
        assert machine.run("codex.py", told) == ""
    machine.send()
    rows = stored(service, "codex-1")
    assert kinds(rows) == {
        "session_start": 1, "user_message": 1, "tool_result": 2, "edit": 2, "file_observed": 1,
        "model_call": 1,
    }  # fmt: skip
    changed, made = of_type(rows, "edit")
    assert (changed["path"], changed["before"], changed["after"]) == (
        f"{machine.folder}/app.py", BEFORE, AFTER)  # fmt: skip
    assert (made["edit_id"], made["before"], made["after"]) == ("call_2#1", "", "n = 1\n")
    [gone] = of_type(rows, "file_observed")
    assert gone == {"path": f"{machine.folder}/old.py", "deleted": True}


def test_cursor(service: Any, machine: Machine) -> None:
    for told in inputs.cursor(str(machine.folder)):
        assert json.loads(machine.run("cursor.py", told)) == {}
    machine.send()
    rows = stored(service, "cursor-1")
    assert kinds(rows) == {
        "session_start": 1, "user_message": 1, "edit": 1, "tool_result": 3, "model_call": 1,
        "session_end": 1,
    }  # fmt: skip
    assert of_type(rows, "tool_result")[2]["error_class"] == "timeout"


def test_copilot(service: Any, machine: Machine) -> None:
    for name, told in inputs.copilot(str(machine.folder)):
        assert machine.run("copilot.py", told, name) == ""
    for told in inputs.copilot_in_vs_code(str(machine.folder)):
        machine.run("copilot.py", told)
    machine.send()
    rows = stored(service, "copilot-1")
    assert kinds(rows) == {
        "session_start": 1, "user_message": 2, "tool_result": 4, "edit": 2, "session_end": 1,
    }  # fmt: skip
    assert of_type(rows, "session_end") == [{"reason": "user_stop"}]
    assert kinds(stored(service, "code-1")) == {
        "session_start": 1, "user_message": 1, "tool_result": 1, "edit": 1,
    }  # fmt: skip


def test_copilot_without_a_session_has_one_in_its_folder(service: Any, machine: Machine) -> None:
    for name, told in inputs.copilot(str(machine.folder), session=None):
        machine.run("copilot.py", told, name)
    machine.send()
    sql = "select session_id, count(*) as n from events where session_id like 'copilot-%'"
    rows = service.query(f"{sql} and session_id <> 'copilot-1' group by all")
    assert [row["n"] for row in rows] == [10]


def test_hooks_that_run_twice_and_at_once_store_each_event_once(
    service: Any, machine: Machine
) -> None:
    told = inputs.claude_code(str(machine.folder), "claude-twice")
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda row: machine.run("claude_code.py", row), [*told, *told]))
    machine.send()
    rows = stored(service, "claude-twice")
    assert kinds(rows)["user_message"] == 2
    assert len(rows) == 13


def test_while_the_service_is_away_events_wait(service: Any, machine: Machine) -> None:
    here = dict(machine.variables)
    machine.variables |= {"PENSTOCK_URL": "http://127.0.0.1:9"}
    told = inputs.codex(str(machine.folder), "codex-away")
    for row in told:
        machine.run("codex.py", row)
    assert len(machine.waiting()) == len(told)
    assert all(path.stat().st_mode & 0o077 == 0 for path in [*machine.waiting(), machine.spool])
    machine.variables = here
    machine.send()
    assert len(stored(service, "codex-away")) == 8
    assert machine.waiting() == []


def test_what_no_agent_says_stops_nobody(machine: Machine) -> None:
    for script in ("claude_code.py", "codex.py", "cursor.py", "copilot.py"):
        for given in ("", "{", "[]", "{}", '{"hook_event_name": "Stop"}', "null"):
            assert machine.run(script, given, "postToolUse") in ("", "{}\n")
    assert machine.waiting() == []
    assert "Error" in machine.problems()


def test_without_a_service_nothing_is_written(machine: Machine) -> None:
    del machine.variables["PENSTOCK_URL"]
    machine.run("codex.py", inputs.codex(str(machine.folder))[1])
    assert not machine.spool.exists()


def test_a_login_says_where_the_service_is(service: Any, machine: Machine, tmp_path: Path) -> None:
    login = tmp_path / ".config" / "penstock" / "login.json"
    login.parent.mkdir(parents=True)
    known = {name: machine.variables.pop(f"PENSTOCK_{name.upper()}") for name in ("url", "key")}
    login.write_text(json.dumps(known))
    machine.run("codex.py", inputs.codex(str(machine.folder), "by-login")[1])
    machine.send()
    assert kinds(stored(service, "by-login")) == {"user_message": 1}


def test_the_settings_of_the_readme_name_events_that_are_read() -> None:
    readme = (HOOKS / "README.md").read_text()
    settings = [json.loads(block) for block in re.findall(r"```json\n(.+?)```", readme, re.DOTALL)]
    scripts = [re.findall(r"(\w+\.py)", json.dumps(each))[0] for each in settings]
    assert scripts == ["claude_code.py", "codex.py", "cursor.py", "copilot.py"]
    for script, each in zip(scripts, settings, strict=True):
        source = (HOOKS / script).read_text()
        for event in each["hooks"]:
            assert f'"{event}"' in source, (script, event)
