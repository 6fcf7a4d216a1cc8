"""Commits of the repositories that imported sessions worked in, which show what became of edits.

Agents' files do not say that. If the repository is on this machine, its commits become
`vcs_commit` events of the sessions, as with `penstock rewards run --git`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.core.clock import SECOND_US, SystemClock
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock_jobs.importers.importer import ImportedEvent, SessionEvents
from penstock_jobs.rewards.bucket import Bucket, ChainMember, EditParameters
from penstock_jobs.rewards.history.git_history import history_events
from penstock_jobs.rewards.history.git_repository import Repository
from penstock_jobs.rewards.rows import row_tuples

_AGE = timedelta(days=30)
#: Sessions that are looked up in a repository at once.
_SESSIONS_AT_ONCE = 200
GIT = "git"
_SESSIONS = """SELECT session_id, repo, project, parent_session, link FROM sessions
    WHERE edits > 0 AND repo IS NOT NULL AND epoch_us(last_ts) >= {since_us}"""
_EDITS = """SELECT session_id, ts, path, before, after FROM edits
    WHERE session_id IN ({sessions}) ORDER BY ts, seq"""
_LOOKS = """SELECT session_id, ts, path FROM observations
    WHERE session_id IN ({sessions}) ORDER BY ts, seq"""


class _Session(NamedTuple):
    session_id: str
    project: str | None
    member: ChainMember | None


def commits_of_sessions(client: Client, problems: list[tuple[str, str]]) -> Iterator[ImportedEvent]:
    """The commits for sessions of the last weeks whose repositories are on this machine.

    A repository that cannot be read goes to `problems`, with the reason."""
    now_us = SystemClock().now_us()
    since_us = now_us - round(_AGE.total_seconds()) * SECOND_US
    for directory, sessions in sorted(_by_repository(client, since_us).items()):
        for start in range(0, len(sessions), _SESSIONS_AT_ONCE):
            some = sessions[start : start + _SESSIONS_AT_ONCE]
            try:
                yield from _commits(client, directory, some, now_us)
            except InvalidInput as error:
                problems.append((str(directory), str(error.facts.get("why", error))))
                break


def repository_of(folder: str) -> Path | None:
    """The root of the Git repository that holds a folder, if it is on this machine."""
    path = Path(folder)
    if not path.is_absolute():
        return None
    try:
        return next((each for each in (path, *path.parents) if (each / ".git").exists()), None)
    except OSError:
        return None


def _by_repository(client: Client, since_us: int) -> Mapping[Path, list[_Session]]:
    found: defaultdict[Path, list[_Session]] = defaultdict(list)
    table = _rows(client, _SESSIONS.format(since_us=since_us))
    for row in table.to_pylist():
        directory = repository_of(row["repo"])
        if directory is None:
            continue
        is_agent = row["link"] == "subagent" and row["parent_session"] is not None
        member = ChainMember(row["parent_session"], subagent=True) if is_agent else None
        found[directory].append(_Session(row["session_id"], row["project"], member))
    return found


def _rows(client: Client, sql: str) -> pa.Table:
    with client.rows(sql, None) as answer:
        return answer.batches.read_all()


def _commits(
    client: Client, directory: Path, sessions: Sequence[_Session], now_us: int
) -> Iterator[ImportedEvent]:
    names = ", ".join("'" + each.session_id.replace("'", "''") + "'" for each in sessions)
    edits, looks = (_rows(client, sql.format(sessions=names)) for sql in (_EDITS, _LOOKS))
    chains = {each.session_id: each.member for each in sessions if each.member is not None}
    empty = pa.table({})
    names_of_others = ("turns", "user_messages", "model_calls", "tool_calls", "feedback", "events")
    others = dict.fromkeys(names_of_others, empty)
    bucket = Bucket(now_us, edits, looks, **others, chains=chains)
    projects = {each.session_id: each.project for each in sessions}
    horizons_s = EditParameters().horizons_s
    rows, _ = history_events(bucket, Repository(directory), horizons_s=horizons_s)
    columns = ("session_id", "event_id", "ts", "seq", "payload")
    for session, event_id, ts_us, seq, payload in row_tuples(rows, *columns):
        decoded: dict[str, Any] = msgspec.json.decode(payload)
        maker = SessionEvents(session, GIT, projects.get(session))
        yield maker.event("vcs_commit", ts_us, event_id, decoded, seq)
