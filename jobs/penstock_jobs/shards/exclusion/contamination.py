"""Contamination: sessions that hold a benchmark's tasks. Training on them would teach the test.

A session is contaminated, in this order, if it is an attempt at a task; if it worked in a
repository of the suite or began at a commit of it; or if it holds enough of a task's text. That is
the share of the task's runs of words that the session has too. Texts that are shorter than a run
are not compared: "fix the failing test" stands everywhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoints.suites import SuiteVersion, suite_names, suite_versions
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.toml_document import unknown
from penstock_jobs.shards.exclusion import Exclusion, Exclusions
from penstock_jobs.shards.exclusion.near_duplicates import Hashes, shingles
from penstock_jobs.shards.recipe import Exclude
from penstock_jobs.shards.session_facts import PinnedSessions, SessionProfile

#: The shortest form in which Git writes a commit.
_COMMIT_HEX_MIN = 7
#: Events in which something is asked, answered or written.
_TYPES = ("user_message", "model_call", "edit")
_COLUMNS = ("tenant", "session_id", "type", "payload")


class Contamination:
    """The tasks of some suites, prepared to be recognised. The suites have contents."""

    def __init__(self, suites: Iterable[SuiteVersion], bounds: Exclude | None = None) -> None:
        self._bounds = bounds = bounds or Exclude()
        self._tasks: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._repos: dict[str, str] = {}
        self._commits: dict[str, list[tuple[str, str]]] = {}
        #: (suite, task) of each text that is long enough, and how many runs it has.
        self._texts: list[tuple[str, str]] = []
        runs_of_texts: list[Hashes] = []
        for suite in sorted(suites, key=lambda suite: suite.suite):
            assert suite.content is not None
            content, name = suite.content, suite.suite
            # A mark that several suites have belongs to the first.
            self._tasks = dict.fromkeys((task.name for task in suite.tasks), name) | self._tasks
            self._sessions = dict.fromkeys(content.sessions, name) | self._sessions
            self._repos = dict.fromkeys(map(plain_repo, content.repos), name) | self._repos
            for commit in sorted(map(str.lower, content.commits)):
                if len(commit) >= _COMMIT_HEX_MIN:
                    short = commit[:_COMMIT_HEX_MIN]
                    self._commits.setdefault(short, []).append((commit, name))
            for task, text in sorted(dict(content.texts).items()):
                runs = shingles(text, bounds.overlap_words)
                if len(runs):
                    self._texts.append((name, task))
                    runs_of_texts.append(runs)
        self._sizes = np.array([len(runs) for runs in runs_of_texts], np.int64)
        # Each run once, sorted; where its texts begin among the owners; the texts that own it.
        every_run = np.concatenate([np.empty(0, np.uint64), *runs_of_texts])
        order = np.argsort(every_run, kind="stable")
        self._runs, starts = np.unique(every_run[order], return_index=True)
        self._starts = np.append(starts, len(every_run))
        self._owners = np.repeat(np.arange(len(runs_of_texts)), self._sizes)[order]

    def of(self, profile: SessionProfile, texts: Sequence[str] = ()) -> Exclusion | None:
        """Why the session is left out, if it is. `texts` are what was asked, answered and written
        in it."""
        if suite := self._sessions.get(profile.session_id):
            return Exclusion("contaminated_task", f"a task of {suite} was made from it")
        if profile.task_id is not None and (suite := self._tasks.get(profile.task_id)):
            return Exclusion("contaminated_task", f"{profile.task_id} of {suite}")
        if profile.repo is not None and (suite := self._repos.get(plain_repo(profile.repo))):
            return Exclusion("contaminated_repo", f"{profile.repo} of {suite}")
        commit = (profile.commit or "").lower()
        for known, suite in self._commits.get(commit[:_COMMIT_HEX_MIN], ()):
            # Both sides may write a commit short.
            if known.startswith(commit) or commit.startswith(known):
                return Exclusion("contaminated_commit", f"{profile.commit} of {suite}")
        return self._overlap(texts)

    def _overlap(self, texts: Sequence[str]) -> Exclusion | None:
        if not len(self._runs) or not texts:
            return None
        words = self._bounds.overlap_words
        runs = np.unique(np.concatenate([shingles(text, words) for text in texts]))
        at = np.minimum(np.searchsorted(self._runs, runs), len(self._runs) - 1)
        counts = np.zeros(len(self._texts), np.int64)
        for place in at[self._runs[at] == runs]:
            counts[self._owners[self._starts[place] : self._starts[place + 1]]] += 1
        shares = counts / self._sizes
        best = int(np.argmax(shares))
        if shares[best] < self._bounds.overlap_min:
            return None
        suite, task = self._texts[best]
        detail = f"{task} of {suite}: {shares[best]:.0%} of its runs of {words} words"
        return Exclusion("contaminated_text", detail)


def plain_repo(repo: str) -> str:
    """`owner/name` for the many spellings of a repository: an address, with a user, with .git."""
    plain = repo.strip().lower().replace("\\", "/")
    if "://" in plain:
        plain = urlsplit(plain).path
    elif ":" in plain and "/" not in plain.split(":", 1)[0]:
        plain = plain.split(":", 1)[1]  # git@host:owner/name
    parts = [part for part in plain.rstrip("/").removesuffix(".git").split("/") if part]
    return "/".join(parts[-2:])


def find_suites(database: Database, tenant: str, names: Sequence[str]) -> tuple[SuiteVersion, ...]:
    """The newest version of each that has a content. Raises InvalidInput where there is none."""
    suites = []
    for name in names:
        versions = suite_versions(database, tenant, name)
        with_content = [version for version in versions if version.content is not None]
        if not with_content:
            why = (
                "only results of it were imported, so nobody knows what its tasks say; "
                "`penstock bench register DIR` takes the suite itself"
                if versions
                else unknown(name, suite_names(database, tenant))
            )
            raise InvalidInput(what=f"The suite {name!r}", why=why)
        suites.append(with_content[-1])
    return tuple(suites)


def find_contaminated(
    sessions: PinnedSessions,
    profiles: Mapping[str, SessionProfile],
    suites: tuple[SuiteVersion, ...],
    bounds: Exclude,
) -> Exclusions:
    search = partial(search_events, suites=suites, bounds=bounds)
    return sessions.on_workers(search, profiles, _COLUMNS)


def search_events(
    rows: pa.Table,
    profiles: Mapping[str, SessionProfile],
    *,
    suites: tuple[SuiteVersion, ...],
    bounds: Exclude,
) -> Exclusions:
    """Runs on a worker: the contaminated ones of the sessions."""
    texts, contamination = _texts(rows), _prepared(suites, bounds)
    exclusions: Exclusions = {}
    for session, profile in profiles.items():
        if exclusion := contamination.of(profile, texts.get(session, ())):
            exclusions[session] = exclusion
    return exclusions


_prepared = lru_cache(maxsize=1)(Contamination)


class _ToolCallText(msgspec.Struct):
    arguments: Any = None


class _PayloadText(msgspec.Struct):
    """The texts of a payload. An unreadable payload has none."""

    text: Any = None
    after: Any = None
    tool_calls: list[_ToolCallText] | None = None

    def texts(self) -> Iterator[str]:
        yield from (text for text in (self.text, self.after) if isinstance(text, str))
        for call in self.tool_calls or ():
            yield from _strings(call.arguments)


def _texts(rows: pa.Table) -> dict[str, list[str]]:
    rows = rows.filter(pc.is_in(rows["type"], pa.array(_TYPES)))
    decoder = msgspec.json.Decoder(_PayloadText)
    texts: dict[str, list[str]] = {}
    for session, payload in zip(rows["session_id"].to_pylist(), rows["payload"], strict=True):
        try:
            content = decoder.decode(memoryview(payload.as_buffer()))
        except msgspec.MsgspecError:
            continue
        texts.setdefault(session, []).extend(content.texts())
    return texts


def _strings(value: Any) -> Iterator[str]:
    """All texts in the arguments of a tool call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
