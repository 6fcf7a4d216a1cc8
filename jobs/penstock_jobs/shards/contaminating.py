"""Which chosen sessions a suite's tasks are in: their texts are read on workers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

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
from penstock_jobs.shards.exclusions.contamination import Contamination, Work
from penstock_jobs.shards.exclusions.reasons import Found, Why

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
