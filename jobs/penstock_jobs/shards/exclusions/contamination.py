"""Contamination: sessions that a benchmark's tasks are in. Training on them would teach the test.

Four ways to be caught, in this order: the session is an attempt at a task; it worked in a
repository of the suite, or began at a commit of it; or enough of a task's text stands in it. That
is measured by runs of words: the share of the task's runs that the session has too. A text with
fewer words than a run is not compared: "fix the failing test" is nobody's property.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.shards.exclusions.reasons import Why
from penstock_jobs.shards.exclusions.shingles import Hashes, shingles

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
