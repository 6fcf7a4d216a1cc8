"""The commits of a Git repository as later states of the edits of a bucket.

Each commit becomes a `vcs_commit` event of the session at the committer's time, but never before
its parents', so that all rewards read it as they read commits that somebody sent.

An edit's path is the repository's path that it ends with, the longest one, or the only one that
ends with it. Where two paths of a session would be the same file, only the one that is spelled
like the repository's is. Renames are those that Git detects (`-M`).

With `horizons_s`, the branch also answers at each edit's horizons, as of `as_of_us`, wherever the
latest thing known about the file is a commit: between two commits the branch stands still, but
the working copy does not. A commit that leaves the edit out on purpose looks like one that took
it back.
"""

import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.rewards.texts.trail import SECOND

_REGULAR = ("100644", "100755", "100664")
#: Instead of the blob of a link or another repository.
_NO_TEXT = ""
_REV_LIST = ("rev-list", "--topo-order", "--reverse", "--parents", "--timestamp")
#: A thousand files of a commit are compared with as many; with more, only equal ones are renames.
_DIFF_TREE = ["diff-tree", "--stdin", "--root", "-r", "-M", "-l1000", "-z", "--raw", "--no-abbrev"]
#: No configuration of the machine may change what a repository says.
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_TEXTS = ((name, pa.string()) for name in ("session_id", "type", "event_id", "payload"))
_EVENTS = pa.schema([*_TEXTS, ("ts", pa.timestamp("us", tz="UTC")), ("seq", pa.int64())])
# What happens at one moment, in this order.
_EDIT, _LOOK, _COMMIT, _HORIZON = range(4)
#: After all other events of the same moment. Commits of one moment have to stay in their order.
_SEQ_FIRST = 2**62


@dataclass(frozen=True)
class Repository:
    """A branch of a Git repository, bare or not. Along first parents, a merge is one change at the
    moment of the merge; else commits of merged branches are states of the files as well, although
    they were never there one after the other. No run of git takes longer than `seconds_max`."""

    directory: Path
    branch: str = "HEAD"
    first_parent: bool = True
    seconds_max: float = 300.0


class ChangedFile(NamedTuple):
    """A file as a commit left it. Without `blob` it was deleted."""

    path: str
    blob: str | None
    renamed_from: str | None = None


class Commit(NamedTuple):
    name: str
    parent: str | None
    ts_us: int
    changed: Sequence[ChangedFile] = ()


def with_history(
    bucket: Bucket, repository: Repository, *, horizons_s: Sequence[int] = ()
) -> Bucket:
    """The bucket and what the repository says about its edits. Raises InvalidInput."""
    events = history_events(bucket, repository, horizons_s=horizons_s)
    if bucket.events.num_columns:
        events = pa.concat_tables([bucket.events, events], promote_options="permissive")
    return replace(bucket, events=events)


def history_events(
    bucket: Bucket, repository: Repository, *, horizons_s: Sequence[int] = ()
) -> pa.Table:
    """The `vcs_commit` events alone, in the order of their moments. Raises InvalidInput."""
    edits = _rows(bucket.edits)
    if not edits:
        return _EVENTS.empty_table()
    commits, paths = _commits(repository, min(ts for _, ts, _ in edits))
    sessions: dict[str, set[str]] = {}
    for session, _, path in edits:
        sessions.setdefault(session, set()).add(path)
    match = _path_matcher(paths, commits, repository.directory)
    followed = {session: _FollowedFiles(match(names)) for session, names in sessions.items()}
    moments: list[tuple[int, int, int, Any]] = [
        (commit.ts_us, _COMMIT, number, commit) for number, commit in enumerate(commits)
    ]
    for session, ts, path in edits:
        moments.append((ts, _EDIT, 0, (session, path)))
        dues = [ts + horizon * SECOND for horizon in horizons_s if horizon]
        moments += [(due, _HORIZON, 0, (session, path)) for due in dues if due <= bucket.as_of_us]
    looks = [row for row in _rows(bucket.observations) if row[0] in followed]
    moments += [(ts, _LOOK, 0, (session, path)) for session, ts, path in looks]
    moments.sort(key=lambda moment: moment[:3])
    events = list(_commit_events(moments, followed))
    texts = _texts(repository, {file.blob for *_, files in events for file in files})
    rows = []
    for number, (session, ts_us, commit, files) in enumerate(events, start=_SEQ_FIRST):
        entries: list[dict[str, object]] = []
        for path, blob, renamed_from in files:
            if blob is None:
                entries.append({"path": path, "deleted": True})
            elif blob in texts:
                renamed = {"renamed_from": renamed_from} if renamed_from else {}
                entries.append({"path": path, "text": texts[blob], **renamed})
        if entries:
            payload = {"commit": commit, "branch": repository.branch, "files": entries}
            encoded, event_id = msgspec.json.encode(payload).decode(), f"git-{commit}-{ts_us}"
            rows.append((session, "vcs_commit", event_id, encoded, ts_us, number))
    records = [dict(zip(_EVENTS.names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(records, schema=_EVENTS)


@dataclass(eq=False)
class _FollowedFiles:
    #: The session's path → the repository's.
    matched: Mapping[str, str]
    #: The repository's path now → the session's.
    names: dict[str, str] = field(default_factory=dict)
    #: The path that the edits named → the session's name of that file now.
    renamed: dict[str, str] = field(default_factory=dict)
    #: The session's path → the commit that says what the file is, as long as nothing later does.
    latest: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def edited(self, path: str) -> None:
        self.latest.pop(path, None)
        if path in self.matched:
            self.names.setdefault(self.matched[path], path)
            self.renamed[path] = path

    def committed(self, commit: Commit) -> Iterator[ChangedFile]:
        # Renames first: what a commit puts at the old path is another file.
        for change in sorted(commit.changed, key=lambda change: change.renamed_from is None):
            known = self.names.get(change.path)
            old = change.renamed_from
            if old is not None and old in self.names:
                before = self.names.pop(old)
                name = known or _new_name(before, old, change.path)
                self.names[change.path] = name
                named_so = [path for path, now in self.renamed.items() if now == before]
                self.renamed |= dict.fromkeys(named_so, name)
                self.latest.pop(before, None)
                self.latest[name] = (commit.name, change.blob)
                if known is None:
                    yield ChangedFile(name, change.blob, before)
                else:
                    yield ChangedFile(before, None)
                    yield ChangedFile(name, change.blob)
            elif known is not None:
                self.latest[known] = (commit.name, change.blob)
                yield ChangedFile(known, change.blob)


def _commit_events(
    moments: Iterable[tuple[int, int, int, Any]], followed: Mapping[str, _FollowedFiles]
) -> Iterator[tuple[str, int, str, tuple[ChangedFile, ...]]]:
    """The branch shows a session some files: session, moment, commit, files."""
    answered: set[tuple[str, int, str]] = set()
    for ts, kind, _, subject in moments:
        if kind == _COMMIT:
            for session, files in followed.items():
                changed = tuple(files.committed(subject))
                if changed:
                    yield session, ts, subject.name, changed
            continue
        session, path = subject
        files = followed[session]
        if kind == _EDIT:
            files.edited(path)
        elif kind == _LOOK:
            files.latest.pop(path, None)  # the branch knows nothing of what was seen
        else:
            # What the branch says about the file, if nothing has happened to it since.
            name = files.renamed.get(path, path)
            if name in files.latest and (session, ts, name) not in answered:
                answered.add((session, ts, name))
                commit, blob = files.latest[name]
                yield session, ts, commit, (ChangedFile(name, blob),)


def _new_name(name: str, old: str, new: str) -> str:
    """The session's name of the new path follows from its name of the old one."""
    plain = _plain(name)
    if plain.endswith(old):
        return plain.removesuffix(old) + new
    return new.removeprefix(old[: len(old) - len(plain)])


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")


def _path_matcher(
    before: Iterable[str], commits: Iterable[Commit], directory: Path
) -> Callable[[Iterable[str]], dict[str, str]]:
    """Which of a repository's paths the paths of a session are, without those that are no file of
    the repository for certain. `before` are the paths that were there before the commits."""
    first = set(before)
    every = first | {file.path for commit in commits for file in commit.changed}
    root = directory.resolve().as_posix().removesuffix("/") + "/"
    by_name: dict[str, list[str]] = {}
    for path in every:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def repository_path(path: str) -> str | None:
        if path in every:
            return path
        same = by_name.get(path.rpartition("/")[2], [])
        shorter = [candidate for candidate in same if path.endswith("/" + candidate)]
        if shorter:
            return max(shorter, key=len)
        longer = [candidate for candidate in same if candidate.endswith("/" + path)]
        likely = [candidate for candidate in longer if candidate in first] or longer
        return likely[0] if len(likely) == 1 else None

    def match(names: Iterable[str]) -> dict[str, str]:
        spelled = {name: _plain(name).removeprefix(root) for name in sorted(names)}
        names_of: dict[str, list[str]] = {}
        for name, path in spelled.items():
            if (known := repository_path(path)) is not None:
                names_of.setdefault(known, []).append(name)
        matched = {}
        for path, own in names_of.items():
            chosen = own if len(own) == 1 else [name for name in own if spelled[name] == path]
            if len(chosen) == 1:
                matched[chosen[0]] = path
        return matched

    return match


def _commits(repository: Repository, since_us: int) -> tuple[list[Commit], list[str]]:
    """The commits from a moment on, parents first, and the files that there were before them. No
    commit is earlier than its parents."""
    along = ["--first-parent"] if repository.first_parent else []
    branch = ("--end-of-options", repository.branch, "--")
    listed = _git(repository, *_REV_LIST, *along, *branch)
    moments: dict[str, int] = {}
    later = []
    for line in listed.decode().splitlines():
        seconds, name, *parents = line.split()
        moment = max([int(seconds) * SECOND, *(moments.get(parent, 0) for parent in parents)])
        moments[name] = moment
        if moment >= since_us:
            later.append(Commit(name, parents[0] if parents else None, moment))
    if not later:
        return [], []
    later.sort(key=lambda commit: commit.ts_us)
    # Each beside its first parent, so that a merge is the change of the branch.
    pairs = "".join(f"{commit.name} {commit.parent or ''}".strip() + "\n" for commit in later)
    changed = _changes(_git(repository, *_DIFF_TREE, stdin=pairs.encode()), moments)
    before: list[str] = []
    if (parent := later[0].parent) is not None:
        names = _git(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", parent)
        before = [os.fsdecode(name) for name in names.split(b"\0") if name]
    return [commit._replace(changed=changed.get(commit.name, ())) for commit in later], before


def _changes(raw: bytes, names: Collection[str]) -> dict[str, list[ChangedFile]]:
    """Reads the output of `git diff-tree -z --stdin`, by commit."""
    by_commit: dict[str, list[ChangedFile]] = {}
    fields = iter(raw.split(b"\0"))
    changed: list[ChangedFile] = []
    for part in fields:
        if not part.startswith(b":"):
            # The name of a commit stands before its files.
            name = part.decode("ascii", "replace").strip()
            if name in names:
                changed = by_commit.setdefault(name, [])
            continue
        _, mode, _, blob, status = part[1:].decode().split(" ")
        path, old = os.fsdecode(next(fields)), None
        if status[0] in "RC":
            path, old = os.fsdecode(next(fields)), path if status[0] == "R" else None
        text = blob if mode in _REGULAR else _NO_TEXT
        changed.append(ChangedFile(path, None if status[0] == "D" else text, old))
    return by_commit


def _texts(repository: Repository, blobs: Iterable[str | None]) -> dict[str, str]:
    """They are by blob, without what is no text."""
    names = sorted(filter(None, set(blobs)))
    if not names:
        return {}
    stdin = "".join(f"{blob}\n" for blob in names).encode()
    printed = _git(repository, "cat-file", "--batch", stdin=stdin)
    texts = {}
    at = 0
    for blob in names:
        end = printed.index(b"\n", at)
        _, kind, *size = printed[at:end].split(b" ")
        at = end + 1
        if kind != b"blob":
            continue
        content = printed[at : at + int(size[0])]
        at += len(content) + 1
        if b"\0" not in content:
            with suppress(UnicodeDecodeError):
                texts[blob] = content.decode()
    return texts


def _git(repository: Repository, *arguments: str, stdin: bytes = b"") -> bytes:
    """Returns the output. Raises InvalidInput with the message of git."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    what = f"the repository {repository.directory}"
    try:
        done = subprocess.run(
            ["git", "-C", str(repository.directory), *arguments],
            input=stdin,
            capture_output=True,
            env=environment | _ENVIRONMENT,
            timeout=repository.seconds_max,
            check=False,
        )
    except (FileNotFoundError, PermissionError) as error:
        why = f"the program git could not be started: {error.strerror}. Install it"
        raise InvalidInput(what=what, why=why) from error
    except subprocess.TimeoutExpired as error:
        why = f"git {arguments[0]} did not end within {repository.seconds_max:g} seconds"
        raise InvalidInput(what=what, why=why) from error
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().replace("\n", " ")
        why = f"git {arguments[0]} said: {message or f'exit status {done.returncode}'}"
        raise InvalidInput(what=what, why=why.rstrip("."))
    return done.stdout


def _rows(table: pa.Table) -> list[tuple[str, int, str]]:
    """Session, moment in microseconds and path, without rows that name no path."""
    if not table.num_rows:
        return []
    rows = row_tuples(table, "session_id", "ts", "path")
    return [(session, ts, path) for session, ts, path in rows if path]
