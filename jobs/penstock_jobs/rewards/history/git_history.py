"""Commits of a Git repository as later states of the edits of a bucket.

A commit becomes a `vcs_commit` event of the chain at the committer's time, but never before its
parents. The first later commit with most of an edit's lines carries the edit; from there, commits
up to the tip are shown. Earlier commits say nothing, since the edit was not in the branch yet. An
edit that no commit carries is compared with the branch itself.

The branch also answers at an edit's horizons, if the newest knowledge of a file is a commit. A
commit that leaves the edit out on purpose looks like one that reverted it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.core.clock import SECOND_US
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.history.git_followed_files import (
    BranchLines,
    CommitStep,
    CommittedEdit,
    EditedChain,
    FollowedChange,
    FollowedFiles,
    MovedText,
    ShownCommit,
    new_name,
    path_matcher,
)
from penstock_jobs.rewards.history.git_repository import (
    BranchHistory,
    ChangedFile,
    Commit,
    Repository,
    read_branch,
    read_texts,
)
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.rewards.texts.changes import ink

_TEXTS = ((name, pa.string()) for name in ("session_id", "type", "event_id", "payload"))
_EVENTS = pa.schema([*_TEXTS, ("ts", pa.timestamp("us", tz="UTC")), ("seq", pa.int64())])
# Kinds of events, in their order at one moment.
_EDIT, _LOOK, _COMMIT, _HORIZON = range(4)
#: After all other events of the same moment. Commits keep their order.
_SEQ_FIRST = 2**62
#: Shorter lines, without white space, do not identify a text.
_TELLING_CHARS = 8
#: A commit with fewer of an edit's lines does not carry it.
_CARRIED_SHARE = 0.5
#: The most later commits of a file that are searched for an edit.
_CANDIDATES_MAX = 64
#: Fewer characters of the agent's lines elsewhere are chance.
_MOVED_CHARS = 20
#: The most moves in a row to files that nobody edited.
_MOVES_MAX = 3


class HistoryGaps(msgspec.Struct, frozen=True):
    #: The newest moment of the clone's knowledge; None in the repository of the branch itself.
    known_until_us: int | None = None
    #: Passed horizons of edits after that moment.
    unanswered: int = 0
    #: Commits and files with missing objects.
    unreadable: int = 0

    def __add__(self, other: "HistoryGaps") -> "HistoryGaps":
        known = [gaps.known_until_us for gaps in (self, other) if gaps.known_until_us is not None]
        counts = self.unanswered + other.unanswered, self.unreadable + other.unreadable
        return HistoryGaps(min(known, default=None), *counts)


class KnownHistory(NamedTuple):
    """A branch from the first edit on or longer, and who carries an edit, by its session, path and
    time."""

    branch: BranchHistory
    carriers: Mapping[tuple[str, str, int], Commit]


def history_events(
    bucket: Bucket,
    repository: Repository,
    *,
    horizons_s: Sequence[int] = (),
    known: "KnownHistory | None" = None,
) -> tuple[pa.Table, HistoryGaps]:
    """Make rows of `vcs_commit`, ordered by time within each chain.

    `known` spares reading the branch and looking for the commits that carry edits."""
    chains = _edited_chains(bucket)
    if not chains:
        return _EVENTS.empty_table(), HistoryGaps()
    if known is None:
        history = read_branch(repository, min(chain.edits[0].ts_us for chain in chains))
    else:
        history = known.branch
    lines = BranchLines(history.commits, history.tip)
    texts = _FileTexts(repository)
    match = path_matcher(history, repository.directory)
    for chain in chains:
        chain.matched = match({edit.path for edit in chain.edits})
        if known is not None:
            chain.carriers = {
                edit: known.carriers[chain.session, edit.path, edit.ts_us] for edit in chain.edits
            }
    if known is None:
        _find_carriers(chains, history, texts)
    moments = bucket.as_of_us, history.known_until_us, horizons_s, known is not None
    shown = [_ShownChain(chain, lines, *moments) for chain in chains]
    for _ in range(_MOVES_MAX):
        if not _find_moves(shown, texts):
            break
    texts.load(file.blob for own in shown for event in own.events for file in event.files)
    rows = [
        row
        for own in shown
        for row in _event_rows(own.chain.session, own.events, repository.branch, texts)
    ]
    unanswered = sum(own.unanswered for own in shown)
    table = pa.Table.from_pylist(rows, schema=_EVENTS)
    unreadable = history.unreadable + len(texts.missing)
    return table, HistoryGaps(history.known_until_us, unanswered, unreadable)


class _FileTexts:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._texts: dict[str, str | None] = {}
        self._lines: dict[str, frozenset[str]] = {}
        self.missing: set[str] = set()

    def load(self, blobs: Iterable[str | None]) -> None:
        wanted = {blob for blob in blobs if blob} - self._texts.keys()
        read = read_texts(self._repository, wanted)
        self._texts |= {blob: read.texts.get(blob) for blob in wanted}
        self.missing |= read.missing

    def text(self, blob: str) -> str | None:
        return self._texts.get(blob)

    def lines(self, blob: str | None) -> frozenset[str]:
        if not blob:
            return frozenset()
        if blob not in self._lines:
            self._lines[blob] = telling_lines(self._texts.get(blob) or "")
        return self._lines[blob]


def telling_lines(text: str) -> frozenset[str]:
    return frozenset(filter(_is_telling, map(str.strip, text.splitlines())))


@lru_cache(1 << 16)  # versions of a file share most lines
def _is_telling(line: str) -> bool:
    return len(ink(line)) >= _TELLING_CHARS


def _edited_chains(bucket: Bucket) -> list[EditedChain]:
    chains: dict[str, EditedChain] = {}
    if bucket.edits.num_rows:
        rows = row_tuples(bucket.edits, "session_id", "ts", "path", "before", "after")
        for session, ts_us, path, before, after in sorted(rows, key=lambda row: row[:2]):
            if path:
                lines = telling_lines(after or "") - telling_lines(before or "")
                chain = chains.setdefault(bucket.chain_of(session), EditedChain(session, []))
                chain.edits.append(CommittedEdit(ts_us, path, lines))
    if bucket.observations.num_rows:
        for session, ts_us, path in row_tuples(bucket.observations, "session_id", "ts", "path"):
            if path and (name := bucket.chain_of(session)) in chains:
                chains[name].looks.append((ts_us, path))
    for chain in chains.values():
        chain.edits.sort(key=lambda edit: edit.ts_us)
    return list(chains.values())


def _find_carriers(
    chains: Iterable[EditedChain], history: BranchHistory, texts: _FileTexts
) -> None:
    versions: defaultdict[str, list[tuple[Commit, ChangedFile]]] = defaultdict(list)
    for commit in history.commits:
        for file in commit.changed[0]:
            if file.blob:
                for name in {file.path, file.renamed_from or file.path}:
                    versions[name].append((commit, file))
    candidates: dict[tuple[int, CommittedEdit], list[tuple[Commit, ChangedFile]]] = {}
    for number, chain in enumerate(chains):
        for edit in chain.edits:
            if edit.lines and (path := chain.matched.get(edit.path)) is not None:
                known = versions[path]
                first = bisect_left(known, edit.ts_us, key=lambda version: version[0].ts_us)
                candidates[number, edit] = known[first : first + _CANDIDATES_MAX]
    files = [file for own in candidates.values() for _, file in own]
    texts.load(blob for file in files for blob in (file.blob, file.before))
    for number, chain in enumerate(chains):
        for edit in chain.edits:
            best = 0.0
            for commit, file in candidates.get((number, edit), ()):
                brought = texts.lines(file.blob) - texts.lines(file.before)
                share = len(edit.lines & brought) / len(edit.lines)
                if share >= _CARRIED_SHARE and share > best:
                    best, chain.carriers[edit] = share, commit


@dataclass(eq=False)
class _ShownChain:
    chain: EditedChain
    lines: BranchLines
    as_of_us: int
    known_until_us: int | None
    horizons_s: Sequence[int]
    #: Whether nobody asks for commits after the last horizon.
    ends: bool = False
    unanswered: int = 0
    moves: Mapping[str, Sequence[MovedText]] = field(default_factory=dict)
    events: list[ShownCommit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.events = self._shown()

    def show_again(self, moves: Mapping[str, Sequence[MovedText]]) -> bool:
        if is_other := moves != self.moves:
            self.moves = moves
            self.events = self._shown()
        return is_other

    def _shown(self) -> list[ShownCommit]:
        files = FollowedFiles(self.chain, self.moves)
        self.unanswered = 0
        answered: set[tuple[int, str]] = set()
        shown = []
        for ts_us, kind, _, subject in self._moments():
            if kind == _COMMIT:
                if (event := files.committed(*subject)) is not None:
                    shown.append(event)
            elif kind == _EDIT:
                files.edited(subject)
            elif kind == _LOOK:
                files.latest.pop(subject, None)  # the branch does not know the observed text
            elif self.known_until_us is not None and ts_us > self.known_until_us:
                if subject in self.chain.matched and (ts_us, subject) not in answered:
                    answered.add((ts_us, subject))
                    self.unanswered += 1
            else:
                # The branch's state of the file, if nothing has happened to it since.
                for name in files.holding(subject):
                    if name in files.latest and (ts_us, name) not in answered:
                        answered.add((ts_us, name))
                        commit, blob = files.latest[name]
                        shown.append(ShownCommit(ts_us, commit, (ChangedFile(name, blob),)))
        return shown

    def _moments(self) -> list[tuple[int, int, int, Any]]:
        moments: list[tuple[int, int, int, Any]] = []
        for number, (step, jumped) in enumerate(self._steps()):
            moments.append((step.commit.ts_us, _COMMIT, number, (step, jumped)))
        for edit in self.chain.edits:
            moments.append((edit.ts_us, _EDIT, 0, edit.path))
            dues = [edit.ts_us + horizon * SECOND_US for horizon in self.horizons_s if horizon]
            moments += [(due, _HORIZON, 0, edit.path) for due in dues if due <= self.as_of_us]
        moments += [(ts_us, _LOOK, 0, path) for ts_us, path in self.chain.looks]
        moments.sort(key=lambda moment: moment[:3])
        return moments

    def _steps(self) -> Iterator[tuple[CommitStep, bool]]:
        """Walk from the first carrying commit, and say where it jumps to another branch."""
        carriers = {commit.name: commit for commit in self.chain.carriers.values()}
        starts: list[Commit | None] = [*sorted(carriers.values(), key=lambda own: own.ts_us)]
        first_us = self.chain.edits[0].ts_us
        moved = (file.file.path for files in self.moves.values() for file in files)
        paths = {*self.chain.matched.values(), *moved}
        last_us = self.chain.edits[-1].ts_us + max(self.horizons_s, default=0) * SECOND_US
        jumped = False
        for start, following in zip(starts or [None], [*starts[1:], None], strict=True):
            arrived = False
            for step in self.lines.way(start.name if start is not None else None, paths):
                if following is not None and step.commit.ts_us > following.ts_us:
                    break
                if self.ends and step.commit.ts_us > last_us:
                    break
                if arrived := step.commit is following:
                    break
                if step.commit.ts_us >= first_us:
                    yield step, jumped
                    jumped = False
            jumped = not arrived


def _find_moves(shown: Sequence[_ShownChain], texts: _FileTexts) -> bool:
    """Also show files into which the agent's lines moved from followed ones, if there are any."""
    changes = [
        (own, event, followed)
        for own in shown
        for event in own.events
        for followed in event.followed
    ]
    texts.load(
        blob for *_, followed in changes for blob in (followed.change.before, followed.change.blob)
    )
    lines_of: defaultdict[tuple[_ShownChain, str], set[str]] = defaultdict(set)
    for own in shown:
        for edit in own.chain.edits:
            lines_of[own, edit.path] |= edit.lines
        for moved in (moved for files in own.moves.values() for moved in files):
            name = new_name(moved.source, moved.source_path, moved.file.path)
            lines_of[own, name] |= lines_of[own, moved.source]
    lost: list[tuple[_ShownChain, ShownCommit, FollowedChange, set[str]]] = []
    for own, event, followed in changes:
        lines, change = lines_of[own, followed.before], followed.change
        lines_of[own, followed.after] |= lines
        gone = lines & texts.lines(change.before) - texts.lines(change.blob)
        if _chars(gone) >= _MOVED_CHARS:
            lost.append((own, event, followed, gone))
    texts.load(
        blob for _, event, *_ in lost for file in event.others for blob in (file.blob, file.before)
    )
    found: dict[_ShownChain, dict[str, list[MovedText]]] = {own: {} for own in shown}
    for own, event, followed, gone in lost:
        for file in event.others:
            if _chars(gone & (texts.lines(file.blob) - texts.lines(file.before))) >= _MOVED_CHARS:
                path = followed.change.renamed_from or followed.change.path
                moved = MovedText(file, followed.before, path)
                found[own].setdefault(event.commit, []).append(moved)
    return sum(own.show_again({**own.moves, **found[own]}) for own in shown) > 0


def _chars(lines: Iterable[str]) -> int:
    return sum(len(ink(line)) for line in lines)


def _event_rows(
    session: str, events: Iterable[ShownCommit], branch: str, texts: _FileTexts
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, event in enumerate(events, start=_SEQ_FIRST):
        entries: list[dict[str, object]] = []
        for path, blob, renamed_from, _ in event.files:
            if blob is None:
                entries.append({"path": path, "deleted": True})
            elif (text := texts.text(blob)) is not None:
                renamed = {"renamed_from": renamed_from} if renamed_from else {}
                entries.append({"path": path, "text": text, **renamed})
        if entries:
            payload = {"commit": event.commit, "branch": branch, "files": entries}
            encoded = msgspec.json.encode(payload).decode()
            event_id = f"git-{event.commit}-{event.ts_us}"
            values = (session, "vcs_commit", event_id, encoded, event.ts_us, number)
            rows.append(dict(zip(_EVENTS.names, values, strict=True)))
    return rows


def carrying_commits(edits: pa.Table, repository: Repository) -> list[tuple[str, int]]:
    """Find the commits that carry the edits of a session, the one with most lines first.

    Each comes with the time of the last edit that it carries. Raises InvalidInput."""
    nothing = pa.table({})
    chains = _edited_chains(Bucket(0, edits, *[nothing] * 7))
    if not chains:
        return []
    history = read_branch(repository, min(chain.edits[0].ts_us for chain in chains))
    match, texts = path_matcher(history, repository.directory), _FileTexts(repository)
    for chain in chains:
        chain.matched = match({edit.path for edit in chain.edits})
    _find_carriers(chains, history, texts)
    lines: defaultdict[str, int] = defaultdict(int)
    last_us: dict[str, int] = {}
    for chain in chains:
        for edit, commit in chain.carriers.items():
            lines[commit.name] += len(edit.lines)
            last_us[commit.name] = max(last_us.get(commit.name, 0), edit.ts_us)
    order = sorted(lines, key=lambda name: (-lines[name], name))
    return [(name, last_us[name]) for name in order]
