"""Exclusion of sessions by their texts: near-duplicates, and contamination with benchmark tasks.

The similarity of texts is the Jaccard index of their shingles, runs of WORDS words. MinHash
estimates it by the share of equal minima in PERMUTATIONS orders of shingles. Two texts are compared
if a whole band of ROWS minima is equal. Measured with the bound 0.8 on pairs of 250 words: all
pairs from 0.87 on were found, four in five from 0.8 to 0.87, one in five from 0.73 to 0.8, none
below 0.7.

Duplicates of duplicates are one cluster. Its session with the smallest id stays.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.core.toml_document import unknown
from penstock.registry.checkpoints.suites import (
    SuiteContent,
    SuiteVersion,
    suite_names,
    suite_versions,
)
from penstock_jobs.rewards.history.session_commits import plain_repo
from penstock_jobs.shards.conversation.reader import read_conversation
from penstock_jobs.shards.conversation.session_events import (
    COLUMNS,
    events_by_session,
    texts_within,
)
from penstock_jobs.shards.exclusion import Exclusion, Exclusions
from penstock_jobs.shards.recipe import Exclude
from penstock_jobs.shards.selection.session_facts import PinnedSessions, SessionProfile

WORDS = 5
BANDS, ROWS = 21, 6
PERMUTATIONS = BANDS * ROWS
#: Texts with fewer shingles, such as "Done, all tests pass.", are never duplicates.
SHINGLES_MIN = 16
#: Shingles that are hashed at once: 126 × 4096 × 8 bytes.
_AT_ONCE = 4096
#: How many earlier texts of a band a text is compared with, besides the first.
_WINDOW = 8
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SINGLE = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
_WORD = re.compile(rf"(?=\w)[{_SINGLE}]|[^\W{_SINGLE}]+")

Hashes = NDArray[np.uint64]
Signature = NDArray[np.uint32]
Pairs = NDArray[np.int64]


def shingles(text: str, words: int) -> Hashes:
    """Hash each distinct run of words, sorted; equal on every machine."""
    hashes = word_hashes(text)
    count = max(len(hashes) - words + 1, 0)
    runs = np.zeros(count, np.uint64)
    for place in range(words):
        runs = runs * _MULTIPLIER + hashes[place : place + count]
    return np.unique(runs)


def word_hashes(text: str) -> Hashes:
    """Hash each word, in order.

    A word is a run of letters, digits and underscores, case-insensitive. In scripts without spaces
    each letter is a word."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    hashes = (xxhash.xxh3_64_intdigest(word.encode()) for word in words)
    return np.fromiter(hashes, np.uint64, len(words))


# Signatures and clusters


def signature(texts: Iterable[str], seed: int) -> Signature | None:
    """Compute the MinHash signature of what the model wrote in a session; None if too short."""
    shingled = [np.empty(0, np.uint64), *(shingles(text, WORDS) for text in texts)]
    grams = np.unique(np.concatenate(shingled))
    if len(grams) < SHINGLES_MIN:
        return None
    # Multiply and add modulo 2⁶⁴: the upper bits are an order of the hashed shingles.
    drawn = np.random.PCG64(seed).random_raw(2 * PERMUTATIONS)
    factors, terms = drawn[:PERMUTATIONS] | np.uint64(1), drawn[PERMUTATIONS:]
    least = np.full(PERMUTATIONS, np.iinfo(np.uint64).max, np.uint64)
    for first in range(0, len(grams), _AT_ONCE):
        hashed = factors[:, None] * grams[None, first : first + _AT_ONCE] + terms[:, None]
        np.minimum(least, hashed.min(axis=1), out=least)
    return (least >> np.uint64(32)).astype(np.uint32)


def near_duplicates(
    ids: Sequence[str],
    signatures: Sequence[Signature | None],
    groups: Sequence[str],
    similarity_min: float,
) -> Exclusions:
    """Exclude near-duplicates, naming the session that stays.

    Sessions of one group are never compared: attempts at a task are alike on purpose."""
    order = [place for place in np.argsort(np.array(ids, object)) if signatures[place] is not None]
    if not order:
        return {}
    rows = np.stack([signatures[place] for place in order])
    _, group = np.unique(np.array([groups[place] for place in order]), return_inverse=True)
    pairs = _candidates(rows)
    pairs = pairs[group[pairs[:, 0]] != group[pairs[:, 1]]]
    alike = np.empty(len(pairs), bool)
    for start in range(0, len(pairs), _AT_ONCE):
        piece = pairs[start : start + _AT_ONCE]
        same = rows[piece[:, 0]] == rows[piece[:, 1]]
        alike[start : start + _AT_ONCE] = same.mean(axis=1) >= similarity_min
    least = least_connected(len(order), pairs[alike, 0], pairs[alike, 1])
    names = [ids[place] for place in order]
    # The whole group of the remaining session stays.
    out = (least != np.arange(len(order))) & (group != group[least])
    return {
        names[place]: Exclusion("near_duplicate", f"of {names[least[place]]}")
        for place in np.flatnonzero(out)
    }


def least_connected(count: int, starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:
    """Find the smallest member of the connected component of each of `count` nodes."""
    least = np.arange(count)
    while True:
        low, high = np.minimum(least[starts], least[ends]), np.maximum(least[starts], least[ends])
        if (low == high).all():
            return least
        np.minimum.at(least, high, low)
        while ((further := least[least]) != least).any():
            least = further


def _candidates(rows: NDArray[np.uint32]) -> Pairs:
    """Pair each text with the first text that has an equal band, and with a few earlier ones.

    All pairs would be half a million for a thousand copies."""
    pairs = [np.empty((0, 2), np.int64)]
    for band in range(BANDS):
        columns = np.ascontiguousarray(rows[:, band * ROWS : (band + 1) * ROWS])
        _, key = np.unique(columns, axis=0, return_inverse=True)
        order = np.argsort(key, kind="stable")
        sorted_key = key[order]
        first = np.searchsorted(sorted_key, sorted_key)
        places = np.arange(len(order))
        for back in range(1, _WINDOW + 1):
            later = places[places - back >= first]
            pairs.append(np.stack([order[later - back], order[later]], axis=1))
        later = places[places > first]
        pairs.append(np.stack([order[first[later]], order[later]], axis=1))
    return np.unique(np.concatenate(pairs), axis=0)


def find_near_duplicates(
    sessions: PinnedSessions, groups: Mapping[str, str], seed: int, similarity_min: float
) -> Exclusions:
    signatures = sessions.on_workers(partial(_sign_events, seed=seed), groups, COLUMNS)
    in_order = [signatures.get(session) for session in groups]
    return near_duplicates(list(groups), in_order, list(groups.values()), similarity_min)


def _sign_events(
    rows: pa.Table, _groups: Mapping[str, str], *, seed: int
) -> dict[str, Signature | None]:
    """Sign sessions on a worker."""
    signatures: dict[str, Signature | None] = {}
    for session, events in events_by_session(rows).items():
        messages = read_conversation(session, events).messages
        written = [message for message in messages if message.call is not None]
        texts = [message.content for message in written]
        texts += [call.arguments for message in written for call in message.tool_calls]
        signatures[session] = signature(texts, seed)
    return signatures


# Contamination: sessions that hold a benchmark's tasks


#: The shortest abbreviation of a commit.
_COMMIT_HEX_MIN = 7
#: Events with texts of users, models and edits.
_TYPES = ("user_message", "model_call", "edit")
_COLUMNS = ("tenant", "session_id", "type", "payload")


class Contamination:
    """Tasks of suites with contents, indexed for search."""

    def __init__(self, suites: Iterable[SuiteVersion], bounds: Exclude | None = None) -> None:
        self._bounds = bounds = bounds or Exclude()
        self._tasks: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._repos: dict[str, str] = {}
        self._commits: dict[str, list[tuple[str, str]]] = {}
        #: (suite, task) of each text that is long enough.
        self._texts: list[tuple[str, str]] = []
        runs_of_texts: list[Hashes] = []
        for suite in sorted(suites, key=lambda suite: suite.suite):
            assert suite.content is not None
            content, name = suite.content, suite.suite
            # What several suites share belongs to the first.
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
        """Return why a session is contaminated, if it is.

        It may be an attempt at a task, have its repository or commit, or hold its text
        (`texts`)."""
        if suite := self._sessions.get(profile.session_id):
            return Exclusion("contaminated_task", f"a task of {suite} was made from it")
        if profile.task_id is not None and (suite := self._tasks.get(profile.task_id)):
            return Exclusion("contaminated_task", f"{profile.task_id} of {suite}")
        if profile.repo is not None and (suite := self._repos.get(plain_repo(profile.repo))):
            return Exclusion("contaminated_repo", f"{profile.repo} of {suite}")
        commit = (profile.commit or "").lower()
        for known, suite in self._commits.get(commit[:_COMMIT_HEX_MIN], ()):
            # Both sides may abbreviate a commit.
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


def find_suites(database: Database, tenant: str, names: Sequence[str]) -> tuple[SuiteVersion, ...]:
    """Find the newest version with content of each suite, and of those that name their sources.

    Raises InvalidInput."""
    suites = []
    for name in sorted({*names, *suite_names(database, tenant)}):
        versions = suite_versions(database, tenant, name)
        with_content = [version for version in versions if version.content is not None]
        content = (with_content[-1].content if with_content else None) or SuiteContent()
        if name not in names and not (content.sessions or content.repos or content.commits):
            continue
        if not with_content:
            why = (
                "only its results were imported, so its tasks are unknown; "
                "`penstock suites register DIR` registers the suite"
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
    search = partial(_search_events, suites=suites, bounds=bounds)
    return sessions.on_workers(search, profiles, _COLUMNS)


def _search_events(
    rows: pa.Table,
    profiles: Mapping[str, SessionProfile],
    *,
    suites: tuple[SuiteVersion, ...],
    bounds: Exclude,
) -> Exclusions:
    """Search sessions on a worker."""
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
    text: Any = None
    after: Any = None
    tool_calls: list[_ToolCallText] | None = None


def _texts(rows: pa.Table) -> dict[str, list[str]]:
    """Collect texts by session, without unreadable payloads."""
    rows = rows.filter(pc.is_in(rows["type"], pa.array(_TYPES)))
    decoder = msgspec.json.Decoder(_PayloadText)
    texts: dict[str, list[str]] = {}
    for session, payload in zip(rows["session_id"].to_pylist(), rows["payload"], strict=True):
        try:
            content = decoder.decode(memoryview(payload.as_buffer()))
        except msgspec.MsgspecError:
            continue
        own = texts.setdefault(session, [])
        own += [text for text in (content.text, content.after) if isinstance(text, str)]
        own += (text for call in content.tool_calls or () for text in texts_within(call.arguments))
    return texts
