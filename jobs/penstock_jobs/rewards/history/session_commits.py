"""Commits of the repositories that sessions worked in, as events of the sessions.

Sessions do not say what became of their edits. Commits do: each becomes a `vcs_commit` event, once,
so that rewards are computed from the lake alone, on any machine."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import Lake
from penstock_jobs.rewards.bucket import Bucket, ChainMember, EditParameters
from penstock_jobs.rewards.history.git_history import HistoryGaps, history_events
from penstock_jobs.rewards.history.git_repository import Repository, git
from penstock_jobs.rewards.rows import quoted, row_tuples

if TYPE_CHECKING:
    from penstock.ingest.file_import import FileImporter

#: The source of the events.
GIT = "git"
#: Commits are looked for this long after a session's last event.
_AGE = timedelta(days=30)
#: Sessions that are looked up in a repository at once.
_SESSIONS_AT_ONCE = 200
_SESSIONS = """SELECT session_id, repo, project, parent_session, link FROM sessions
    WHERE edits > 0 AND {condition}"""
_EDITS = """SELECT session_id, ts, path, before, after FROM edits
    WHERE session_id IN ({sessions}) ORDER BY ts, seq"""
_LOOKS = """SELECT session_id, ts, path FROM observations
    WHERE session_id IN ({sessions}) ORDER BY ts, seq"""
_KNOWN = """SELECT session_id, event_id FROM events
    WHERE type = 'vcs_commit' AND session_id IN ({sessions})"""
_OTHER_TABLES = ("turns", "user_messages", "model_calls", "tool_calls", "feedback", "events")

#: Answers a statement over the lake.
Ask = Callable[[str], pa.Table]


class SessionCommit(NamedTuple):
    session_id: str
    event_id: str
    ts_us: int
    seq: int
    payload: dict[str, Any]
    project: str | None

    def line(self) -> bytes:
        """Encode it as a line of events."""
        event = {
            "session_id": self.session_id, "event_id": self.event_id, "ts": self.ts_us,
            "seq": self.seq, "type": "vcs_commit", "payload": self.payload,
            "source": GIT, "source_key": self.event_id,
        }  # fmt: skip
        return msgspec.json.encode(event | ({"project": self.project} if self.project else {}))


@dataclass
class RepositoryReport:
    sessions: int = 0
    commits: int = 0
    gaps: HistoryGaps = field(default_factory=HistoryGaps)
    #: Why the repository could not be read.
    problem: str | None = None


@dataclass
class SessionCommits:
    """The commits that the lake does not have yet. `reports` are complete at the end."""

    ask: Ask
    now_us: int
    horizons_s: Sequence[int] = EditParameters.horizons_s
    reports: dict[Repository, RepositoryReport] = field(default_factory=dict)
    #: Only sessions with an event since then; None for those of the last weeks.
    since_us: int | None = None

    def of_this_machine(self) -> Iterator[SessionCommit]:
        """Yield commits for sessions of the last weeks whose repositories are on this machine, but
        for those with a report."""
        done = {repository.directory.resolve() for repository in self.reports}
        found: defaultdict[Path, list[_Session]] = defaultdict(list)
        for session in self._sessions(f"repo IS NOT NULL AND {self._heard_of()}"):
            if (directory := repository_of(session.folder or "")) is not None:
                found[directory].append(session)
        for directory, sessions in sorted(found.items()):
            if directory.resolve() not in done:
                yield from self._in(Repository(directory), sessions)

    def of_project(self, repository: Repository, project: str) -> Iterator[SessionCommit]:
        """Yield commits for the sessions of a project. Raises InvalidInput."""
        sessions = list(self._sessions(f"project = {quoted([project])}"))
        yield from self._in(repository, sessions)
        if (problem := self.reports[repository].problem) is not None:
            raise InvalidInput(what=f"The repository {repository.directory}", why=problem)

    def of_clone(self, repository: Repository) -> Iterator[SessionCommit]:
        """Yield commits for sessions that worked in this repository, in any clone of it."""
        told = self._sessions(self._heard_of())
        yield from self._in(repository, [own for own in told if is_of(repository, *own[1:3])])

    def _heard_of(self) -> str:
        age_us = round(_AGE.total_seconds()) * SECOND_US
        since_us = self.now_us - age_us if self.since_us is None else self.since_us
        return f"epoch_us(last_ts) >= {since_us}"

    def _sessions(self, condition: str) -> Iterator["_Session"]:
        for row in self.ask(_SESSIONS.format(condition=condition)).to_pylist():
            is_agent = row["link"] == "subagent" and row["parent_session"] is not None
            member = ChainMember(row["parent_session"], subagent=True) if is_agent else None
            yield _Session(row["session_id"], row["repo"], row["project"], member)

    def _in(
        self, repository: Repository, sessions: Sequence["_Session"]
    ) -> Iterator[SessionCommit]:
        report = self.reports.setdefault(repository, RepositoryReport())
        for start in range(0, len(sessions), _SESSIONS_AT_ONCE):
            some = sessions[start : start + _SESSIONS_AT_ONCE]
            try:
                commits, gaps = self._commits(repository, some)
            except InvalidInput as error:
                report.problem = str(error.facts.get("why", error))
                return
            report.sessions += len(some)
            report.commits += len(commits)
            report.gaps += gaps
            yield from commits

    def _commits(
        self, repository: Repository, sessions: Sequence["_Session"]
    ) -> tuple[list[SessionCommit], HistoryGaps]:
        names = quoted(each.session_id for each in sessions)
        edits, looks, known = (
            self.ask(sql.format(sessions=names)) for sql in (_EDITS, _LOOKS, _KNOWN)
        )
        chains: Mapping[str, ChainMember] = {
            each.session_id: each.member for each in sessions if each.member is not None
        }
        others = dict.fromkeys(_OTHER_TABLES, pa.table({}))
        bucket = Bucket(self.now_us, edits, looks, **others, chains=chains)
        projects = {each.session_id: each.project for each in sessions}
        rows, gaps = history_events(bucket, repository, horizons_s=self.horizons_s)
        stored = set(row_tuples(known, "session_id", "event_id"))
        columns = ("session_id", "event_id", "ts", "seq", "payload")
        commits = [
            SessionCommit(session, event_id, ts_us, seq, msgspec.json.decode(payload), project)
            for session, event_id, ts_us, seq, payload in row_tuples(rows, *columns)
            if (session, event_id) not in stored
            for project in [projects.get(session)]
        ]
        return commits, gaps


class _Session(NamedTuple):
    session_id: str
    folder: str | None
    project: str | None
    member: ChainMember | None


def repository_of(folder: str) -> Path | None:
    """Find the root of the Git repository that holds a folder, if it is on this machine."""
    path = Path(folder)
    if not path.is_absolute():
        return None
    try:
        return next((each for each in (path, *path.parents) if (each / ".git").exists()), None)
    except OSError:
        return None


@cache
def repository_name(repository: Repository) -> str:
    """Return the name of the repository's origin, else of its folder. Raises InvalidInput."""
    origin = git(repository, "config", "--get", "remote.origin.url", none_found=1).decode()
    folder = repository.directory.resolve()
    folder = folder.parent if folder.name == ".git" else folder
    return plain_repo(origin.strip() or folder.name).split("/")[-1]


def is_of(repository: Repository, folder: str | None, project: str | None) -> bool:
    """Whether a session's folder is in this clone, or folder or project are named like it."""
    own = repository.directory.resolve()
    root = repository_of(folder or "")
    if root is not None:
        return root.resolve() == (repository_of(str(own)) or own)
    name = repository_name(repository)
    return name in {plain_repo(each).split("/")[-1] for each in (folder, project) if each}


def plain_repo(repo: str) -> str:
    """Normalize spellings of a repository to `owner/name`."""
    plain = repo.strip().lower().replace("\\", "/")
    if "://" in plain:
        plain = urlsplit(plain).path
    elif ":" in plain and "/" not in plain.split(":", 1)[0]:
        plain = plain.split(":", 1)[1]  # git@host:owner/name
    parts = [part for part in plain.rstrip("/").removesuffix(".git").split("/") if part]
    return "/".join(parts[-2:])


#: Bytes of events that are appended to the event log together.
_BODY_BYTES = 4 * 1024 * 1024


def take_commits(
    lake: Lake,
    now_us: int,
    horizons_s: Sequence[int],
    named: tuple[Repository, str | None] | None = None,
    *,
    since_us: int | None = None,
    done: Mapping[Repository, RepositoryReport] | None = None,
) -> Mapping[Repository, RepositoryReport]:
    """Store new commits for the sessions of a named repository or its project, or else of this
    machine but for repositories that are `done`.

    Without a name only an embedded lake is asked: elsewhere events come from other machines, whose
    folders say nothing about this one. Raises InvalidInput."""
    if named is None and not lake.database.is_sqlite:
        return {}
    ask = lambda sql: lake.query(sql).arrow()  # noqa: E731
    taken = SessionCommits(ask, now_us, horizons_s, dict(done or {}), since_us)
    if named is None:
        commits = taken.of_this_machine()
    else:
        repository, project = named
        commits = taken.of_project(repository, project) if project else taken.of_clone(repository)
    importer: FileImporter | None = None
    body = bytearray()
    for commit in commits:
        body += commit.line() + b"\n"
        if len(body) >= _BODY_BYTES:
            importer = _append(lake, importer, body)
    if body:
        importer = _append(lake, importer, body)
    if importer is not None:
        importer.finish()
    return taken.reports


def _append(lake: Lake, importer: "FileImporter | None", body: bytearray) -> "FileImporter":
    from penstock.ingest.file_import import FileImporter

    importer = importer or FileImporter(lake, TENANT_DEFAULT)
    importer.take_body(bytes(body))
    body.clear()
    return importer
