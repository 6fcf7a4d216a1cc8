"""Transcripts of agents in the shapes of three harnesses, written from short lists of acts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Act(NamedTuple):
    """A command with its output, an edit (a path with the text before and after it), or a call of
    another harness's tool by its name."""

    text: str
    output: str = ""
    before: str | None = None
    after: str | None = None
    given: dict[str, Any] | None = None

    def call(
        self,
        shell: str,
        command: str,
        editor: str,
        edit: dict[str, Any],
        names: tuple[str, str, str],
    ) -> tuple[str, dict[str, Any]]:
        """The tool and what it is given, in the words of a harness."""
        if self.given is not None:
            return self.text, self.given
        if self.before is None:
            return shell, {command: self.text}
        return editor, edit | dict(
            zip(names, (self.text, self.before, self.after or ""), strict=True)
        )


def ran(command: str, output: str = "ok") -> Act:
    return Act(command, output)


def edited(path: str, before: str, after: str) -> Act:
    return Act(path, "edited", before, after)


def called(name: str, given: dict[str, Any], output: str = "ok") -> Act:
    return Act(name, output, given=given)


_STR_REPLACE = {"command": "str_replace"}, ("path", "old_str", "new_str")


def claude_code(path: Path, request: str, acts: Sequence[Act]) -> Path:
    """A session of Claude Code, one JSON object a line."""
    file = path / "session.jsonl"
    rows: list[dict[str, Any]] = []

    def add(kind: str, content: Any, **facts: Any) -> None:
        number = len(rows)
        rows.append(
            {
                "type": kind, "uuid": f"u-{number}",
                "parentUuid": f"u-{number - 1}" if number else None,
                "sessionId": "5f0c7a52-0000-4000-8000-000000000001", "cwd": "/testbed",
                "version": "2.1.0", "isSidechain": False, "userType": "external",
                "timestamp": f"2026-11-01T10:{number // 60:02}:{number % 60:02}.000Z",
                "message": {"role": kind, "content": content, **facts},
            }
        )  # fmt: skip

    add("user", request)
    for number, act in enumerate(acts):
        names = ("file_path", "old_string", "new_string")
        name, given = act.call("Bash", "command", "Edit", {}, names)
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        add("assistant", [call], id=f"msg_{number}", model="own-model", usage={"output_tokens": 9})
        add(
            "user",
            [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": act.output}],
        )
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def trajectory(path: Path, request: str, acts: Sequence[Act]) -> Path:
    """A trajectory in ATIF, as Harbor's agents leave it in their folder."""
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": request}]
    for number, act in enumerate(acts):
        name, given = act.call("bash", "command", "str_replace_editor", *_STR_REPLACE)
        call = {"tool_call_id": f"call_{number}", "function_name": name, "arguments": given}
        seen = {"source_call_id": f"call_{number}", "content": act.output}
        steps.append(
            {
                "step_id": number + 2, "source": "agent", "message": "", "model_name": "own-model",
                "timestamp": f"2026-11-01T10:00:{number % 60:02}Z",
                "tool_calls": [call], "observation": {"results": [seen]},
            }
        )  # fmt: skip
    document = {
        "schema_version": "ATIF-v1.5", "session_id": "trial-1", "steps": steps,
        "agent": {"name": "own-agent", "version": "1.0", "model_name": "own-model"},
    }  # fmt: skip
    (path / "trajectory.json").write_text(json.dumps(document))
    return path


def messages(request: str, acts: Sequence[Act]) -> list[dict[str, Any]]:
    """The messages of a sample of Inspect."""
    said: list[dict[str, Any]] = [{"role": "user", "content": request, "source": "input"}]
    for number, act in enumerate(acts):
        name, given = act.call("bash", "cmd", "text_editor", *_STR_REPLACE)
        call = {"id": f"call_{number}", "function": name, "arguments": given, "type": "function"}
        said.append(
            {"role": "assistant", "content": "", "tool_calls": [call], "model": "own/model"}
        )
        said.append(
            {
                "role": "tool",
                "content": act.output,
                "tool_call_id": f"call_{number}",
                "function": name,
            }
        )
    return said
