"""Records of tools about who wrote which lines: notes of git-ai and records of Agent Trace.

Formats: git-ai's authorship/3.0.0 in `refs/notes/ai`, and Agent Trace 0.1 in the file
`.agent-trace/traces.jsonl` of a work tree."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from penstock_jobs.importers import fields

GIT_AI, AGENT_TRACE = "git-ai", "Agent Trace"
#: A record that claims more lines is damaged.
_LINES_MAX = 1_000_000
_PARTS = re.compile(r"[^\w-]+")


class RecordedLines(NamedTuple):
    """Lines of a file at a commit, and the conversation that wrote them."""

    source: str
    commit: str
    path: str
    numbers: frozenset[int]
    #: Digest or address of the conversation, and names that may be its session's.
    conversation: str
    names: tuple[str, ...] = ()
    tool: str | None = None
    model: str | None = None


def read_git_ai(commit: str, note: str) -> Iterator[RecordedLines]:
    """Read a note; one that is none gives nothing. People's lines are left out."""
    attested, _, written = note.partition("\n---\n")
    try:
        facts = msgspec.json.decode(written)
    except msgspec.DecodeError:
        return
    path = ""
    for line in attested.splitlines():
        if not line.startswith("  "):
            path = line[1:-1] if line.startswith('"') and line.endswith('"') else line
            continue
        key, _, ranges = line.strip().partition(" ")
        key = key.partition("::")[0]
        if key.startswith("h_"):
            continue
        kind = "sessions" if key.startswith("s_") else "prompts"
        agent = fields.mapping(facts, kind, key, "agent_id")
        spans = (span.partition("-")[::2] for span in ranges.split(","))
        numbers = _numbers((first, last or first) for first, last in spans)
        if path and numbers:
            claim = (GIT_AI, commit, path, numbers, key, (fields.text(agent, "id") or "",))
            yield RecordedLines(*claim, fields.text(agent, "tool"), fields.text(agent, "model"))


def read_agent_trace(line: str | bytes) -> Iterator[RecordedLines]:
    """Read a record. Mixed lines, where a person wrote too, count as the agent's."""
    try:
        record = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return
    commit, tool = fields.text(record, "vcs", "revision"), fields.text(record, "tool", "name")
    for file in fields.rows(record, "files"):
        path = fields.text(file, "path")
        for talk in fields.rows(file, "conversations"):
            by = fields.mapping(talk, "contributor")
            numbers = _numbers(
                (span.get("start_line"), span.get("end_line"))
                for span in fields.rows(talk, "ranges")
                if (fields.mapping(span, "contributor") or by).get("type") in ("ai", "mixed")
            )
            if commit and path and numbers:
                talks = str(talk.get("url") or record.get("id"))
                claim = (AGENT_TRACE, commit, path, numbers, talks, tuple(_PARTS.split(talks)))
                yield RecordedLines(*claim, tool, fields.text(by, "model_id"))


def session_keys(session: str, tools: Iterable[str]) -> set[str]:
    """Compute the keys that git-ai gives a session, by any of these names of its tool."""
    digests = (hashlib.sha256(f"{tool}:{session}".encode()).hexdigest() for tool in tools)
    return {key for own in digests for key in (f"s_{own[:14]}", own[:16], own[:7])}


def _numbers(spans: Iterable[tuple[Any, Any]]) -> frozenset[int]:
    numbers: set[int] = set()
    for first, last in spans:
        try:
            span = range(int(first), int(last) + 1)
        except (TypeError, ValueError):
            continue
        if len(span) + len(numbers) <= _LINES_MAX:
            numbers.update(span)
    return frozenset(numbers)
