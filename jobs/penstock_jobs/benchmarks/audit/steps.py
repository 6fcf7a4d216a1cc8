"""The steps of an agent in one form, whatever harness wrote the transcript. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.events.messages import as_text
from penstock_jobs.importers.edits import ToolUse, edits_of, edits_of_patch, is_v4a
from penstock_jobs.importers.fields import arguments_of

Kind = Literal["command", "read", "edit", "fetch"]

_TEXT_CHARS_MAX = 100_000
_COMMANDS = ("command", "cmd", "script", "keystrokes", "code", "commands", "arguments")
_PATHS = ("file_path", "filePath", "path", "filename", "absolute_path", "target_file", "paths")
_ADDRESSES = ("url", "uri", "query", "q", "search_query", "pattern")
_FETCHERS = ("fetch", "web", "browse", "navigate", "http", "search_engine", "url")
#: Beginnings of outputs that say that nothing was there.
_NOTHING = (
    "fatal:", "no such file", "not found", "cannot access", "permission denied", "up to date",
    "could not resolve", "unknown revision", "no stash entries", "connection refused",
    "network is unreachable", "temporary failure in name", "no matching distribution",
)  # fmt: skip


@dataclass
class Step:
    """One act of an agent. `text` is the command, the path or the address."""

    number: int
    kind: Kind
    text: str
    #: What it showed; None if the transcript does not tell.
    output: str | None = None
    #: Of an edit: texts of the part of the file that was changed.
    before: str = ""
    after: str = ""
    deleted: bool = False

    @property
    def failed(self) -> bool:
        start = (self.output or "").strip()[:400].lower()
        return any(sign in start for sign in _NOTHING)

    @property
    def found(self) -> bool:
        return not self.failed and self.output != ""

    @property
    def shown(self) -> str:
        return self.output or ""

    @property
    def added(self) -> list[str]:
        old = {line.strip() for line in self.before.splitlines()}
        return [line for line in map(str.strip, self.after.splitlines()) if line not in old]


@dataclass
class AttemptTranscript:
    steps: list[Step] = field(default_factory=list)
    #: What the user asked: before the first step, and in all.
    prompt: str = ""
    request: str = ""


def steps_of(events: Iterable[tuple[str, Mapping[str, Any]]]) -> AttemptTranscript:
    """Read the events of a session, by type and payload, as steps."""
    transcript, calls, said = AttemptTranscript(), dict[str, Step](), list[str]()

    def add(kind: Kind, text: str, **facts: Any) -> Step:
        transcript.prompt = transcript.prompt or "\n".join(said)
        step = Step(len(transcript.steps) + 1, kind, text[:_TEXT_CHARS_MAX], **facts)
        transcript.steps.append(step)
        return step

    for event, payload in events:
        if event == "user_message" and not payload.get("is_copied_context"):
            said.append(str(payload.get("text") or ""))
        elif event == "model_call":
            for call in payload.get("tool_calls") or ():
                given = call.get("arguments")
                given = arguments_of(given) or {"command": given}  # some write a bare command
                use = ToolUse(str(call.get("id")), str(call.get("name")), given, None, "")
                act = _act(use.tool.lower(), use.arguments)
                text = act[1] if act and act[0] == "command" else ""
                edits = [*edits_of_patch(text)] if is_v4a(text) else [*edits_of(use, {})]
                if act is not None and (text or not edits):
                    calls[use.call_id] = add(*act)
                for edit in edits:
                    facts = {"before": edit.before, "after": edit.after, "deleted": edit.deleted}
                    calls[use.call_id] = add("edit", edit.path, **facts)
                for path, content, added in files_written(text):
                    add("edit", path, before="\n" if added else "", after=content)
        elif event == "tool_result":
            step = calls.get(str(payload.get("call_id")))
            if step is not None and payload.get("output") is not None:
                step.output = as_text(payload["output"])[:_TEXT_CHARS_MAX]
        elif event == "edit" and payload.get("path") and payload.get("call_id") not in calls:
            texts = {name: str(payload.get(name) or "") for name in ("before", "after")}
            add("edit", str(payload["path"]), **texts, deleted=bool(payload.get("deleted")))
    transcript.request = "\n".join(said)
    return transcript


def _act(tool: str, given: Mapping[str, Any]) -> tuple[Kind, str] | None:
    """The act of a call, if it is no edit."""
    path = _first(given, _PATHS)
    if "editor" in tool or "str_replace" in tool:  # these take a word such as `view` as command
        return ("read", path) if given.get("command") == "view" else None
    if any(part in tool for part in _FETCHERS):
        return ("fetch", _first(given, _ADDRESSES) or str(given))
    if command := _first(given, _COMMANDS):
        return ("command", command)
    return ("read", path) if path else None


def _first(given: Mapping[str, Any], names: Iterable[str]) -> str:
    value = next((given[name] for name in names if given.get(name)), "")
    if not isinstance(value, list):
        return str(value)
    words = [str(each.get("keystrokes") if isinstance(each, dict) else each) for each in value]
    return words[2] if words[1:2] in (["-c"], ["-lc"]) and words[2:] else " ".join(words)


# The simple commands of a shell line, and the files that its here-documents write

_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?(.*?)\n(.*?)^\s*\1\s*$", re.DOTALL | re.MULTILINE)
_TARGET = re.compile(r">{1,2}\s*['\"]?([^\s'\"<>&|;]+)")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"\w+=")
_WRAPPERS = {"sudo", "env", "time", "nohup", "exec", "command", "xargs", "then", "do", "else"}


def commands_in(line: str) -> Iterator[list[str]]:
    """The words of each simple command, its name first. What is quoted stays a word."""
    lexer = shlex.shlex(
        _COMMENT.sub("", _HEREDOC.sub(r" \2", line)), posix=True, punctuation_chars="();<>|&\n"
    )
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that nobody closed
        tokens = line.split()
    for token in [*tokens, "\n"]:
        if not token or token[0] not in "();|&\n" or token.startswith("&>"):
            words.append(token)
            continue
        while words and (words[0] in _WRAPPERS or _ASSIGNMENT.match(words[0])):
            del words[0]
        if words[:1] and words[0].rpartition("/")[2] in ("bash", "sh", "zsh") and words[2:]:
            yield from commands_in(words[2])
        elif words:
            yield [words[0].rpartition("/")[2], *words[1:]]
        words = []


def files_written(line: str) -> Iterator[tuple[str, str, bool]]:
    """Paths and texts of files that here-documents write, and whether they are added to it."""
    for match in _HEREDOC.finditer(line):
        first = line[: match.start()].rpartition("\n")[2] + match[2]
        if target := _TARGET.search(first):
            yield target[1], match[3], target[0].startswith(">>")
