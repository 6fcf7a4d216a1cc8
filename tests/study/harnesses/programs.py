"""Claude Code and Codex as their registry has them, run without a person, a vendor or a login."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.servers.scripted_answers import ScriptedAnswer

#: Where `make harnesses` installs them.
FOLDER = os.environ.get("HARNESSES")
PROGRAM = "def add(a, b):\n    return a - b\n\n\nprint(add(2, 3))\n"
_SECONDS_MAX = 300


class Harness(NamedTuple):
    """`run` works in a folder on a task before a model, and returns its own session's id.

    `answers` are what the model says in that folder, one after the other. `shell` is a call of its
    tool for commands. `compaction` is in the message that asks for a summary."""

    name: str
    answers: Callable[[Path], list[ScriptedAnswer]]
    shell: Callable[[str], ScriptedAnswer]
    run: Callable[..., str]
    compaction: str


def _said(name: str, thinking: str = "", text: str = "", **arguments: Any) -> ScriptedAnswer:
    return ScriptedAnswer(text, thinking, ((name, json.dumps(arguments)),))


def _claude_answers(work: Path) -> list[ScriptedAnswer]:
    calc, notes = str(work / "calc.py"), str(work / "notes.md")
    return [
        _said("Bash", "I look around.", "I look first.", command="ls", description="List"),
        _said("Read", "Now the file.", file_path=calc),
        # It comes back with a default that the model did not write.
        _said("Edit", text="So.", file_path=calc, old_string="a - b", new_string="a + b"),
        ScriptedAnswer("", "", tuple(
            ("Bash", json.dumps({"command": command, "description": "Run"}))
            for command in ("python3 calc.py", "echo two")
        )),
        _said("Bash", command="exit 3", description="Fail"),
        _said("Edit", file_path=calc, old_string="nowhere", new_string="x"),
        _said("Write", file_path=notes, content="# nötes\n“quoted”\n"),
        _said("Read", file_path=notes),
        _said("NoSuchTool", x=1),
        _said("Bash", command="cat notes.md", description="Show"),
        _said("Bash", "Once more.", command="python3 calc.py", description="Run"),
        ScriptedAnswer("It adds now."),
    ]  # fmt: skip


def _claude_shell(command: str) -> ScriptedAnswer:
    return _said("Bash", command=command, description="Run")


def _run_claude(url: str, work: Path, home: Path, *, tokens_max: int | None = None) -> str:
    limit = {} if tokens_max is None else {
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "100000",
        "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": str(tokens_max // 1000),
    }  # fmt: skip
    settings = limit | {
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "m",
        "ANTHROPIC_MODEL": "m",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",  # or it refuses to run without asking, as root
    }
    flags = ("--output-format", "json", "--dangerously-skip-permissions")
    said = _ran("claude", "-p", "Fix calc.py.", *flags, work=work, home=home, **settings)
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert told["result"] == "It adds now.", told
    return str(told["session_id"])


def _codex_shell(command: str, thinking: str = "", text: str = "") -> ScriptedAnswer:
    return _said("exec_command", thinking, text, cmd=command)


def _codex_answers(work: Path) -> list[ScriptedAnswer]:
    shell = _codex_shell
    return [
        shell("ls", "I look around.", "I look first."),
        shell("cat calc.py", "Now the file."),
        shell("sed -i s/a.-.b/a+b/ calc.py", text="So."),
        ScriptedAnswer("", "", tuple(
            ("exec_command", json.dumps({"cmd": command}))
            for command in ("python3 calc.py", "echo two")
        )),
        shell("exit 3"),
        _said("no_such_tool", x=1),
        shell("printf 'nötes “quoted”' > notes.md"),
        shell("cat notes.md"),
        shell("cat nowhere.md"),
        shell("wc notes.md"),
        shell("python3 calc.py", "Once more."),
        ScriptedAnswer("It adds now."),
    ]  # fmt: skip


#: The first two lines are those of docs/connect.md.
_CODEX = """
model_provider = "own"
model_providers.own = {{ name = "own", base_url = "{url}/v1", wire_api = "responses" }}
analytics.enabled = false
"""


def _run_codex(url: str, work: Path, home: Path, *, tokens_max: int | None = None) -> str:
    limit = "" if tokens_max is None else f"model_auto_compact_token_limit = {tokens_max}\n"
    (home / "config.toml").write_text(limit + _CODEX.format(url=url))
    flags = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    asked = ("exec", "--model", "m", *flags, "Fix calc.py.")
    said = _ran("codex", *asked, work=work, home=home, CODEX_HOME=str(home))
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert events[-1]["type"] == "turn.completed", said[-2000:]
    [thread] = [event["thread_id"] for event in events if event["type"] == "thread.started"]
    return str(thread)


def _ran(program: str, *arguments: str, work: Path, home: Path, **settings: str) -> str:
    assert FOLDER
    path = Path(FOLDER).absolute() / "node_modules" / ".bin" / program
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [str(path), *arguments],
        cwd=work,
        env=kept | settings | {"HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


HARNESSES = [
    Harness("claude", _claude_answers, _claude_shell, _run_claude, "Respond with TEXT ONLY"),
    Harness("codex", _codex_answers, _codex_shell, _run_codex, "CONTEXT CHECKPOINT COMPACTION"),
]
