"""Contamination: sessions that a benchmark's tasks are in. Training on them would teach the test.

Four ways to be caught, in this order: the session is an attempt at a task; it worked in a
repository of the suite, or began at a commit of it; or enough of a task's text stands in it. That
is measured by runs of words: the share of the task's runs that the session has too. A text with
fewer words than a run is not compared: "fix the failing test" is nobody's property."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.checkpoints.suites import SuiteVersion, suite_names, suite_versions
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.execution import Executor
from penstock.lake.buckets import Bucket, SessionId, plan_sessions, read_bucket
from penstock.lake.catalog import Pin
from penstock.lake.lake import Lake
from penstock.settings import Settings
from penstock.toml_document import unknown
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.shards.exclusion.reasons import Found, Why
from penstock_jobs.shards.exclusion.shingles import Hashes, shingles

Places = NDArray[np.int64]

#: The shortest that Git writes a commit.
_COMMIT_HEX_MIN = 7


class SuiteTexts(Protocol):
    """What a suite says of its tasks, so that they can be found in sessions."""

    @property
    def name(self) -> str: ...

    @property
    def task_ids(self) -> Collection[str]: ...

    @property
    def sessions(self) -> Collection[str]:
        """That tasks were made from."""

    @property
    def repos(self) -> Collection[str]: ...

    @property
    def commits(self) -> Collection[str]: ...

    @property
    def texts(self) -> Mapping[str, str]:
        """By task: what it asks, and what answers it."""


@dataclass(frozen=True)
class Work:
    """A session, as far as a task could be known by it."""

    session_id: str
    task_id: str | None = None
    repo: str | None = None
    commit: str | None = None
    #: What was asked, answered and written in it.
    texts: Sequence[str] = ()


class _Gram(NamedTuple):
    suite: str
    task: str
    size: int


class Contamination:
    """The tasks of some suites, ready to be looked for."""

    def __init__(
        self, suites: Iterable[SuiteTexts], words: int = 13, overlap_min: float = 0.1
    ) -> None:
        suites = sorted(suites, key=lambda suite: suite.name)
        self._words, self._overlap_min = words, overlap_min
        self._tasks = _owners((suite.name, suite.task_ids) for suite in suites)
        self._sessions = _owners((suite.name, suite.sessions) for suite in suites)
        self._repos = _owners((suite.name, map(plain_repo, suite.repos)) for suite in suites)
        self._commits: dict[str, list[tuple[str, str]]] = {}
        for suite in suites:
            for commit in sorted(map(str.lower, suite.commits)):
                if len(commit) >= _COMMIT_HEX_MIN:
                    short = commit[:_COMMIT_HEX_MIN]
                    self._commits.setdefault(short, []).append((commit, suite.name))
        self._texts: list[_Gram] = []
        grams: list[Hashes] = []
        for suite in suites:
            for task, text in sorted(suite.texts.items()):
                found = shingles(text, words)
                if len(found):
                    self._texts.append(_Gram(suite.name, task, len(found)))
                    grams.append(found)
        self._grams, self._starts, self._of = _inverted(grams)
        self._sizes = np.array([text.size for text in self._texts], np.int64)

    def of(self, work: Work) -> Why | None:
        """Why it is left out, or none."""
        if suite := self._sessions.get(work.session_id):
            return Why("contaminated_task", f"a task of {suite} was made from it")
        if work.task_id is not None and (suite := self._tasks.get(work.task_id)):
            return Why("contaminated_task", f"{work.task_id} of {suite}")
        if work.repo is not None and (suite := self._repos.get(plain_repo(work.repo))):
            return Why("contaminated_repo", f"{work.repo} of {suite}")
        if work.commit is not None and (suite := self._suite_of_commit(work.commit)):
            return Why("contaminated_commit", f"{work.commit} of {suite}")
        return self._overlap(work.texts)

    def _suite_of_commit(self, commit: str) -> str | None:
        """Either may be written short."""
        commit = commit.lower()
        if len(commit) < _COMMIT_HEX_MIN:
            return None
        for known, suite in self._commits.get(commit[:_COMMIT_HEX_MIN], ()):
            if known.startswith(commit) or commit.startswith(known):
                return suite
        return None

    def _overlap(self, texts: Sequence[str]) -> Why | None:
        if not len(self._grams) or not texts:
            return None
        grams = np.unique(np.concatenate([shingles(text, self._words) for text in texts]))
        at = np.minimum(np.searchsorted(self._grams, grams), len(self._grams) - 1)
        counts = np.zeros(len(self._texts), np.int64)
        for place in at[self._grams[at] == grams]:
            counts[self._of[self._starts[place] : self._starts[place + 1]]] += 1
        shares = counts / self._sizes
        best = int(np.argmax(shares))
        if shares[best] < self._overlap_min:
            return None
        suite, task, _ = self._texts[best]
        runs = f"{shares[best]:.0%} of its runs of {self._words} words"
        return Why("contaminated_text", f"{task} of {suite}: {runs}")


def plain_repo(repo: str) -> str:
    """`owner/name` of the ways in which a repository is written: an address, with a user, with
    .git at its end."""
    plain = repo.strip().lower().replace("\\", "/")
    if "://" in plain:
        plain = urlsplit(plain).path
    elif ":" in plain and "/" not in plain.split(":", 1)[0]:
        plain = plain.split(":", 1)[1]  # git@host:owner/name
    parts = [part for part in plain.rstrip("/").removesuffix(".git").split("/") if part]
    return "/".join(parts[-2:])


def _owners(named: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """By name the first suite that has it."""
    found: dict[str, str] = {}
    for suite, names in named:
        for name in names:
            found.setdefault(name, suite)
    return found


def _inverted(grams: Sequence[Hashes]) -> tuple[Hashes, Places, Places]:
    """Each run once, sorted; where the texts that it stands in begin; and these."""
    if not grams:
        return np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int64)
    every = np.concatenate(grams)
    order = np.argsort(every, kind="stable")
    distinct, starts = np.unique(every[order], return_index=True)
    texts = np.repeat(np.arange(len(grams)), [len(some) for some in grams])[order]
    return distinct, np.append(starts, len(every)), texts


#: Events in which something is asked, answered or written.
_TELLING = ("user_message", "model_call", "edit")
_COLUMNS = ("tenant", "session_id", "type", "payload")


@dataclass(frozen=True)
class KnownSuite:
    """A suite as contamination asks for it. Equal ones are the same, so that a worker prepares
    each once."""

    name: str
    version: str
    task_ids: tuple[str, ...]
    sessions: tuple[str, ...]
    repos: tuple[str, ...]
    commits: tuple[str, ...]
    task_texts: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def texts(self) -> Mapping[str, str]:
        return dict(self.task_texts)


@dataclass(frozen=True)
class Bounds:
    """From which share of a task's runs of so many words on a session is left out."""

    words: int
    overlap_min: float


@dataclass(frozen=True)
class _Task:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    bucket: Bucket
    #: Sessions without their texts.
    works: Mapping[str, Work] = field(repr=False)
    suites: tuple[KnownSuite, ...]
    bounds: Bounds


class _ToolCall(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"")


class _Told(msgspec.Struct):
    """What a payload says; of one that cannot be read, nothing."""

    text: Any = None
    after: Any = None
    tool_calls: list[_ToolCall] | None = None


def find_suites(database: Database, tenant: str, names: Sequence[str]) -> tuple[KnownSuite, ...]:
    """The newest content of each. Raises InvalidInput where none is known."""
    return tuple(_find(database, tenant, name) for name in names)


def _find(database: Database, tenant: str, name: str) -> KnownSuite:
    versions = suite_versions(database, tenant, name)
    if not versions:
        raise InvalidInput(
            what=f"The suite {name!r}", why=unknown(name, suite_names(database, tenant))
        )
    told = [one for one in versions if one.content is not None]
    if not told:
        why = (
            "only results of it were imported, so nobody knows what its tasks say; "
            "`penstock bench register DIR` takes the suite itself"
        )
        raise InvalidInput(what=f"The suite {name!r}", why=why)
    return _known(told[-1])


def _known(one: SuiteVersion) -> KnownSuite:
    assert one.content is not None
    said = one.content
    tasks = tuple(task.name for task in one.tasks)
    return KnownSuite(
        one.suite, one.version, tasks, said.sessions, said.repos, said.commits, said.texts
    )


def find_contaminated(
    lake: Lake,
    executor: Executor,
    pin: Pin,
    *,
    works: Mapping[SessionId, Work],
    suites: tuple[KnownSuite, ...],
    bounds: Bounds,
) -> Found:
    """`works` without texts: they are read from the events of the pinned lake."""
    target = lake.settings.room(RewardSettings).rewards_bucket_bytes_target
    tasks = (
        _Task(lake.settings, bucket, _of_bucket(bucket, works), suites, bounds)
        for bucket in plan_sessions(lake, pin, [(one,) for one in sorted(works)], target)
    )
    found: Found = {}
    for done in executor.run(look, tasks):
        found |= done.result
    return found


def _of_bucket(bucket: Bucket, works: Mapping[SessionId, Work]) -> dict[str, Work]:
    return {one.session_id: works[one] for one in bucket.sessions or ()}


def look(task: _Task) -> Found:
    """On a worker: the sessions of the bucket that a task is in."""
    with Lake(task.settings) as lake:
        said = _texts(read_bucket(lake, task.bucket, _COLUMNS))
    suites = _prepared(task.suites, task.bounds)
    found: dict[str, Why | None] = {
        session: suites.of(Work(*_without_texts(work), said.get(session, ())))
        for session, work in task.works.items()
    }
    return {session: why for session, why in found.items() if why is not None}


def _without_texts(work: Work) -> tuple[str, str | None, str | None, str | None]:
    return work.session_id, work.task_id, work.repo, work.commit


@lru_cache(maxsize=1)
def _prepared(suites: tuple[KnownSuite, ...], bounds: Bounds) -> Contamination:
    return Contamination(suites, bounds.words, bounds.overlap_min)


def _texts(rows: pa.Table) -> dict[str, list[str]]:
    rows = rows.filter(pc.is_in(rows["type"], pa.array(_TELLING)))
    read = msgspec.json.Decoder(_Told).decode
    found: dict[str, list[str]] = {}
    for session, payload in zip(rows["session_id"].to_pylist(), rows["payload"], strict=True):
        try:
            told = read(memoryview(payload.as_buffer()))
        except msgspec.MsgspecError:
            continue
        found.setdefault(session, []).extend(_said(told))
    return found


def _said(told: _Told) -> Iterator[str]:
    texts: Iterable[Any] = (told.text, told.after)
    yield from (one for one in texts if isinstance(one, str))
    for call in told.tool_calls or ():
        if bytes(call.arguments):
            yield from _inside(msgspec.json.decode(call.arguments))


def _inside(value: Any) -> Iterator[str]:
    """The texts of arguments, which are JSON, often JSON within a text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _inside(one)
    elif isinstance(value, list):
        for one in value:
            yield from _inside(one)
