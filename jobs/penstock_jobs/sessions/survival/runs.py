"""A run for `penstock survival`: new commits into the lake, rewards, and what tools recorded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.backends.execution import open_executor
from penstock.backends.terminal.options import since_us
from penstock.backends.terminal.output import progress_of, spinner_of
from penstock.core.clock import SystemClock
from penstock.lake.lake import Lake
from penstock_jobs.rewards.definition import SURVIVAL, find_definition
from penstock_jobs.rewards.history.git_repository import Repository
from penstock_jobs.rewards.history.session_commits import RepositoryReport, take_commits
from penstock_jobs.rewards.rows import quoted, row_tuples
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.sessions.survival.counting import Counts
from penstock_jobs.sessions.survival.page import read_counts
from penstock_jobs.sessions.survival.recorded_lines import KnownSessions, read_recorded

Reports = dict[Repository, RepositoryReport]


def run_survival(
    lake: Lake, tenant: str, folders: Sequence[Path], since: str
) -> tuple[Counts, Reports]:
    """Count what stands, by the repositories of sessions on this machine and by these.

    Raises InvalidInput, and what a run of rewards raises."""
    definition, first_us = find_definition(SURVIVAL), since_us(since)
    now_us = SystemClock().now_us()
    read: Reports = {}
    with spinner_of("reading commits"):
        for each in (*((Repository(folder.resolve()), None) for folder in folders), None):
            read |= take_commits(
                lake, now_us, definition.horizons_s(), each, since_us=first_us, done=read
            )
    with open_executor(lake.settings) as executor, progress_of("sessions") as follow:
        run(lake, executor, RunRequest(definition), follow=follow)
    counts, known = read_counts(lake, tenant, since), _known_sessions(lake, tenant)
    parameters = definition.terms[0].parameters
    with spinner_of("reading records of tools"):
        for repository, report in read.items():
            if report.problem is None:
                tallies, agreements = read_recorded(repository, first_us, now_us, parameters, known)
                counts.tallies += tallies
                counts.agreements += agreements
    return counts, read


def _known_sessions(lake: Lake, tenant: str) -> KnownSessions:
    def ask(sql: str, *names: str) -> list[tuple[Any, ...]]:
        return list(row_tuples(lake.query(sql, tenant=tenant).arrow(), *names))

    def edits_of(sessions: Sequence[str]) -> list[tuple[Any, ...]]:
        columns = ("session_id", "path", "before", "after")
        chosen = f"session_id in ({quoted(sessions)})"
        return ask(f"select {', '.join(columns)} from edits where {chosen}", *columns)

    tools = ask("select session_id, client from sessions", "session_id", "client")
    return KnownSessions(dict(tools), edits_of)
