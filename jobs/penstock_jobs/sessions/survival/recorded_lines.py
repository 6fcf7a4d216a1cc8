"""Lines that tools' records give to agents: what became of them, and how they agree with sessions.

A record becomes an edit that put its lines into the file of its commit, so the history readers and
measures of sessions follow it. A conversation that is a session of the lake is compared with it
and counted there."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

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
from penstock_jobs.sessions.survival.records import (
    GIT_AI,
    RecordedLines,
    read_agent_trace,
    read_git_ai,
    session_keys,
    states_of,
)

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
    for piece in pieces:
        edits, facts, carriers = _edits(repository, piece, commits, project)
        bucket = Bucket(now_us, edits, *[pa.table({})] * 7)
        branch = KnownHistory(history, carriers)
        horizons_s = parameters.horizons_s
        events, _ = history_events(bucket, repository, horizons_s=horizons_s, known=branch)
        rows = line_survival(replace(bucket, events=events), parameters).to_pylist()
        tallies += tallies_of(rows, facts)
    return tallies, _agreements(repository, history, known, sessions)


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
    for record in sorted(records, key=lambda record: commits[record.commit].ts_us):
        file = _changed(commits[record.commit], record.path)
        if file is not None and file.blob:
            lines = read_texts(repository, {file.blob}).texts.get(file.blob, "").splitlines()
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
    pieces: defaultdict[str, list[tuple[set[str], list[RecordedLines]]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: places[record.commit]):
        own = pieces[record.conversation]
        piece = next((piece for way, piece in own if record.commit in way), None)
        if piece is None:
            piece = []
            own.append(({step.commit.name for step in lines.way(record.commit)}, piece))
        piece.append(record)
    return [piece for own in pieces.values() for _, piece in own]


def _edits(
    repository: Repository,
    records: Sequence[RecordedLines],
    commits: Mapping[str, Commit],
    project: str,
) -> tuple[pa.Table, dict[tuple[str, str], dict[str, str | None]], dict[tuple[str, int], Commit]]:
    """Make an edit of all lines that a conversation has in a file of a commit."""
    files: defaultdict[tuple[str, str], dict[str, RecordedLines]] = defaultdict(dict)
    for record in records:
        own = files[record.commit, record.path]
        before = own.setdefault(record.conversation, record)
        own[record.conversation] = record._replace(numbers=before.numbers | record.numbers)
    changed = {place: _changed(commits[place[0]], place[1]) for place in files}
    texts = read_texts(repository, {file.blob for file in changed.values() if file and file.blob})
    rows, facts, carriers = [], {}, {}
    for number, ((name, path), talks) in enumerate(files.items()):
        file, commit = changed[name, path], commits[name]
        text = texts.texts.get(file.blob or "") if file else None
        if text is None:
            continue
        owned = [record.numbers for record in talks.values()]
        states = states_of(text.splitlines(keepends=True), owned)
        for place, record in enumerate(talks.values()):
            edit, session = f"{name}-{number}", record.conversation
            ts_us = commit.ts_us - len(talks) + place
            values = (session, edit, edit, path, *states[place : place + 2], None, place, ts_us)
            rows.append(dict(zip(_EDITS.names, values, strict=True)))
            carriers[path, ts_us] = commit
            suffix = path.rpartition(".")[2].lower() if "." in path else None
            facts[session, edit] = {
                "source": record.source, "tool": record.tool, "model": record.model,
                "project": project, "language": suffix,
            }  # fmt: skip
    return pa.Table.from_pylist(rows, _EDITS), facts, carriers


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
    places: defaultdict[tuple[str, str, str, str], set[int]] = defaultdict(set)
    for record, session in known.items():
        places[record.source, session, record.commit, record.path] |= record.numbers
    found: dict[str, Agreement] = {}
    for (source, session, commit, path), numbers in places.items():
        if (file := _changed(commits[commit], path)) is None or not file.blob:
            continue
        texts = read_texts(repository, {file.blob} | ({file.before} if file.before else set()))
        lines = texts.texts.get(file.blob, "").splitlines()
        said = telling_lines("\n".join(line for at, line in enumerate(lines, 1) if at in numbers))
        brought = telling_lines("\n".join(lines))
        brought -= telling_lines(texts.texts.get(file.before or "", ""))
        own = ours[session, path] & (brought | said)
        total = found.setdefault(source, Agreement(source))
        total.both += len(said & own)
        total.only_records += len(said - own)
        total.only_sessions += len(own - said)
    return list(found.values())
