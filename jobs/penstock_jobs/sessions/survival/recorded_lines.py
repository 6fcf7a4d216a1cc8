"""Records of tools about who wrote which lines, what became of the lines, and how the records agree
with sessions.

Read are git-ai's authorship/3.0.0 in `refs/notes/ai`, and Agent Trace 0.1 in the file
`.agent-trace/traces.jsonl` of a work tree. A record becomes an edit that put its lines into the
file of its commit, so the history readers and measures of sessions follow it. A conversation that
is a session of the lake is compared with it and counted there."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock_jobs.importers import fields
from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.history.git_followed_files import BranchLines, path_matcher
from penstock_jobs.rewards.history.git_history import KnownHistory, history_events, telling_lines
from penstock_jobs.rewards.history.git_repository import (
    BranchHistory,
    ChangedFile,
    Commit,
    Repository,
    git,
    read_branch,
    read_texts,
)
from penstock_jobs.rewards.history.session_commits import repository_name
from penstock_jobs.rewards.measures.edits import line_survival
from penstock_jobs.sessions.survival.counting import Agreement, Tally, tallies_of

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


#: Records, or conversations, whose files are read at once.
_AT_ONCE = 200
_TRACES = ".agent-trace/traces.jsonl"
_STRINGS = ("session_id", "event_id", "edit_id", "path", "before", "after", "checkpoint")
_EDITS = pa.schema(
    [*((name, pa.string()) for name in _STRINGS), ("seq", pa.int64()),
     ("ts", pa.timestamp("us", tz="UTC"))]
)  # fmt: skip


@dataclass(frozen=True)
class KnownSessions:
    """The sessions of the lake."""

    tools: Mapping[str, str | None]
    #: Reads edits of sessions: session, path, before, after.
    edits_of: Callable[[Sequence[str]], Sequence[tuple[Any, ...]]]


def read_recorded(
    repository: Repository,
    since_us: int,
    now_us: int,
    parameters: EditParameters,
    sessions: KnownSessions,
) -> tuple[list[Tally], list[Agreement]]:
    """Tally lines of conversations that the lake lacks, and compare the others.

    Raises InvalidInput."""
    history = read_branch(repository, since_us)
    commits = {commit.name: commit for commit in history.commits}
    records = [own for own in _records(repository, commits) if own.commit in commits]
    # What git-ai says of a commit, Agent Trace need not say again.
    noted = {record.commit for record in records if record.source == GIT_AI}
    records = [own for own in records if own.source == GIT_AI or own.commit not in noted]
    records = _without_copies(repository, records, commits)
    known = _sessions_of(records, sessions.tools)
    pieces = _by_line_of_commits([own for own in records if own not in known], history)
    project = repository_name(repository)
    tallies: list[Tally] = []
    for start in range(0, len(pieces), _AT_ONCE):
        some = pieces[start : start + _AT_ONCE]
        edits, facts, carriers = _edits(repository, some, commits, project)
        bucket = Bucket(now_us, edits, *[pa.table({})] * 7)
        branch = KnownHistory(history, carriers)
        horizons_s = parameters.horizons_s
        events, _ = history_events(bucket, repository, horizons_s=horizons_s, known=branch)
        rows = line_survival(replace(bucket, events=events), parameters).to_pylist()
        tallies += tallies_of(rows, facts)
    return tallies, _agreements(repository, history, known, sessions)


def _claimed(
    repository: Repository, records: Sequence[RecordedLines], commits: Mapping[str, Commit]
) -> Iterator[tuple[RecordedLines, ChangedFile, Mapping[str, str]]]:
    """Yield records whose commits change their files, with the texts of these."""
    for start in range(0, len(records), _AT_ONCE):
        some = records[start : start + _AT_ONCE]
        files = [(own, _changed(commits[own.commit], own.path)) for own in some]
        blobs = {blob for _, file in files if file for blob in (file.blob, file.before) if blob}
        texts = read_texts(repository, blobs).texts
        yield from ((own, file, texts) for own, file in files if file and file.blob)


def _records(repository: Repository, commits: Collection[str]) -> Iterator[RecordedLines]:
    listed = git(repository, "notes", "--ref=ai", "list").decode().split()
    pairs = zip(listed[1::2], listed[::2], strict=True)
    notes = {commit: blob for commit, blob in pairs if commit in commits}
    texts = read_texts(repository, notes.values()).texts
    for commit, blob in notes.items():
        yield from read_git_ai(commit, texts.get(blob, ""))
    file = repository.directory / _TRACES
    if file.is_file():
        for line in file.read_bytes().splitlines():
            yield from read_agent_trace(line)


def _without_copies(
    repository: Repository, records: Sequence[RecordedLines], commits: Mapping[str, Commit]
) -> list[RecordedLines]:
    """Keep the newest of equal claims: the copy of a commit on another branch has its note too."""
    newest: dict[tuple[object, ...], RecordedLines] = {}
    records = sorted(records, key=lambda record: commits[record.commit].ts_us)
    for record, file, texts in _claimed(repository, records, commits):
        lines = texts.get(file.blob or "", "").splitlines()
        said = tuple(lines[at - 1] for at in sorted(record.numbers) if at <= len(lines))
        newest[record.conversation, record.path, said] = record
    return list(newest.values())


def _sessions_of(
    records: Sequence[RecordedLines], sessions: Mapping[str, str | None]
) -> dict[RecordedLines, str]:
    tools = {record.tool for record in records if record.tool}
    keys = {
        key: session
        for session, client in sessions.items()
        for key in session_keys(session, tools | ({client} if client else set()))
    }
    found = {}
    for record in records:
        named = [name for name in record.names if name in sessions]
        if session := next(iter(named), keys.get(record.conversation)):
            found[record] = session
    return found


def _by_line_of_commits(
    records: Sequence[RecordedLines], history: BranchHistory
) -> list[list[RecordedLines]]:
    """Group a conversation's records by lines of commits: on another, its files are unknown."""
    lines = BranchLines(history.commits, history.tip)
    places = {commit.name: place for place, commit in enumerate(history.commits)}
    pieces: defaultdict[str, list[list[RecordedLines]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: places[record.commit]):
        own = pieces[record.conversation]
        passed = (piece for piece in own if lines.passes(piece[0].commit, record.commit))
        if (piece := next(passed, None)) is None:
            own.append(piece := [])
        piece.append(record)
    return [piece for own in pieces.values() for piece in own]


def _edits(
    repository: Repository,
    pieces: Sequence[Sequence[RecordedLines]],
    commits: Mapping[str, Commit],
    project: str,
) -> tuple[
    pa.Table, dict[tuple[str, str], dict[str, str | None]], dict[tuple[str, str, int], Commit]
]:
    """Make an edit of all lines that a piece has in a file of a commit. Each piece is a session."""
    claims = _merged((str(at), record) for at, piece in enumerate(pieces) for record in piece)
    rows: list[dict[str, Any]] = []
    facts, carriers = {}, {}
    for record, file, texts in _claimed(repository, claims, commits):
        text, commit = texts.get(file.blob or ""), commits[record.commit]
        if text is None:
            continue
        others = (
            line
            for number, line in enumerate(text.splitlines(keepends=True), 1)
            if number not in record.numbers
        )
        session, path, ts_us = record.conversation, record.path, commit.ts_us - 1
        edit = f"{record.commit}-{len(rows)}"
        values = (session, edit, edit, path, "".join(others), text, None, 0, ts_us)
        rows.append(dict(zip(_EDITS.names, values, strict=True)))
        carriers[session, path, ts_us] = commit
        suffix = path.rpartition(".")[2].lower() if "." in path else None
        facts[session, edit] = {
            "source": record.source, "tool": record.tool, "model": record.model,
            "project": project, "language": suffix,
        }  # fmt: skip
    return pa.Table.from_pylist(rows, _EDITS), facts, carriers


def _merged(told: Iterable[tuple[str, RecordedLines]]) -> list[RecordedLines]:
    """Merge what records tell of a session's lines in a file of a commit."""
    merged: dict[tuple[str, ...], RecordedLines] = {}
    for session, record in told:
        place = (session, record.source, record.commit, record.path)
        before = merged.get(place, record).numbers
        merged[place] = record._replace(conversation=session, numbers=before | record.numbers)
    return list(merged.values())


def _changed(commit: Commit, path: str) -> ChangedFile | None:
    return next((file for files in commit.changed for file in files if file.path == path), None)


def _agreements(
    repository: Repository,
    history: BranchHistory,
    known: Mapping[RecordedLines, str],
    sessions: KnownSessions,
) -> list[Agreement]:
    """Compare the lines that records and edits give to the sessions that both know."""
    commits = {commit.name: commit for commit in history.commits}
    rows = sessions.edits_of(sorted(set(known.values()))) if known else []
    match = path_matcher(history, repository.directory)({path for _, path, *_ in rows})
    ours: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for session, path, before, after in rows:
        if path in match:
            ours[session, match[path]] |= telling_lines(after or "") - telling_lines(before or "")
    claims = _merged((session, record) for record, session in known.items())
    found: dict[str, Agreement] = {}
    for record, file, texts in _claimed(repository, claims, commits):
        lines = texts.get(file.blob or "", "").splitlines()
        own = (line for at, line in enumerate(lines, 1) if at in record.numbers)
        said = telling_lines("\n".join(own))
        brought = telling_lines("\n".join(lines)) - telling_lines(texts.get(file.before or "", ""))
        edited = ours[record.conversation, record.path] & (brought | said)
        total = found.setdefault(record.source, Agreement(record.source))
        total.both += len(said & edited)
        total.only_records += len(said - edited)
        total.only_sessions += len(edited - said)
    return list(found.values())
