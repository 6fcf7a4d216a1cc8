"""Slices of a shard: workers make them, from events to parts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import Bucket, read_bucket
from penstock.lake.lake import Lake
from penstock.settings import Settings
from penstock.shards.manifest import PartFile
from penstock.shards.schema import SHARD_ROWS, SORTED_BY
from penstock.shards.validation import ShardValidator
from penstock.shards.writer import PartLimits, PartWriter
from penstock_jobs.shards.conversation_reader import read_conversation
from penstock_jobs.shards.plan import LeftOutSession, ShardSlice
from penstock_jobs.shards.recipe import Tokens
from penstock_jobs.shards.registration import AnnouncingStore
from penstock_jobs.shards.rendered_branches import Renderer, open_renderer
from penstock_jobs.shards.samples import SampleOptions, SampleRows
from penstock_jobs.shards.session_events import COLUMNS, events_by_session

_ORDER = [(name, "ascending") for name in SORTED_BY]


@dataclass(frozen=True)
class SliceTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    #: Of the announced names.
    owner: str = field(repr=False)
    #: The parts lie here until the shard is published.
    folder: str
    limits: PartLimits
    tokens: Tokens
    #: Of the recipe: its tokenizer and template are relative to it.
    directory: Path
    slice: ShardSlice = field(repr=False)
    bucket: Bucket
    chains: Mapping[str, str] = field(repr=False)
    consents: Mapping[str, str] = field(repr=False)
    copies: Mapping[str, frozenset[str]] = field(repr=False)


@dataclass(frozen=True)
class SliceResult:
    """The parts of a slice, and what became of its sessions and branches."""

    folder: str
    files: list[PartFile]
    statuses: Counter[str]
    #: Sessions that have no rows; and branches, by reason.
    left_out: list[LeftOutSession]
    branches_left_out: Counter[str]
    #: Problems with events, by kind. Their sessions may have rows all the same.
    problems: Counter[str]
    sessions: tuple[str, ...]
    #: The tokens of each sample.
    lengths: list[int]
    versions: tuple[int, int] | None
    tokenizers: frozenset[str]
    templates: frozenset[str]


def make_slice(task: SliceTask) -> SliceResult:
    """Runs on a worker. If it runs again, it writes the same bytes to the same names. Raises
    ShardInvalid, and what reading and rendering raise."""
    with Lake(task.settings) as lake:
        rows = read_bucket(lake, task.bucket, COLUMNS)
        samples = _samples(task, rows)
        table, routes = _finished(samples, task.slice.chosen)
        ShardValidator().check(table, routes)
        store = AnnouncingStore(lake.store, lake.database, task.owner)
        with PartWriter(store, task.folder, task.limits, routed=routes is not None) as writer:
            if table.num_rows:
                writer.write(table, routes)
    return _result(task, samples, table, writer.files)


def _samples(task: SliceTask, rows: pa.Table) -> SampleRows:
    tokens = task.tokens
    options = SampleOptions(tokens.source, tokens.max_length)
    samples = SampleRows(options, _renderer(tokens, task.directory))
    events = events_by_session(rows)
    chosen = set(task.slice.chosen["session_id"].to_pylist())
    chains: dict[str, list[str]] = {}
    for session in events:
        chains.setdefault(task.chains.get(session, session), []).append(session)
    for chain in sorted(chains):
        conversations = [
            read_conversation(one, events[one], copied=task.copies.get(one, frozenset()))
            for one in chains[chain]
        ]
        samples.add_chain(conversations, task.consents, chosen=chosen, rollout_id=chain)
    return samples


@cache
def _renderer(tokens: Tokens, directory: Path) -> Renderer | None:
    """Opening a tokenizer takes longer than rendering a session."""
    if tokens.tokenizer is None:
        return None
    template = directory / tokens.template if tokens.template else None
    return open_renderer(directory / tokens.tokenizer, template)


def _finished(samples: SampleRows, chosen: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """The samples with the plan's columns, in the order of a shard."""
    table, routes = samples.table(), samples.routes()
    at = pc.index_in(table["session_id"], value_set=chosen["session_id"].combine_chunks())
    of_session = chosen.take(at)
    columns = {
        "group_id": of_session["group_id"],
        "reward": of_session["reward"],
        "reward_components": of_session["components"],
        "advantage": of_session["advantage"],
        "loss_weight": of_session["weight"],
        "split": of_session["split"],
    }
    for name, column in columns.items():
        place = SHARD_ROWS.get_field_index(name)
        kind = SHARD_ROWS.field(name)
        table = table.set_column(place, kind, column.cast(kind.type))
    order = pc.sort_indices(table, sort_keys=_ORDER)
    return table.take(order), routes.take(order) if routes is not None else None


def _result(
    task: SliceTask, samples: SampleRows, table: pa.Table, files: list[PartFile]
) -> SliceResult:
    held = set(table["session_id"].to_pylist())
    details = {
        session: problem.detail or problem.kind for session, problem in reversed(samples.problems)
    }
    whole = {
        one.session_id: LeftOutSession(one.session_id, one.reason, details.get(one.session_id))
        for one in samples.left_out
        if one.session_id not in held
    }
    for session in set(task.slice.chosen["session_id"].to_pylist()) - held - whole.keys():
        whole[session] = LeftOutSession(session, "nothing_written")
    branches: Counter[str] = Counter()
    for one in samples.left_out:
        branches[one.reason] += one.branches
    low, high = pc.min(table["min_policy_version"]), pc.max(table["max_policy_version"])
    return SliceResult(
        folder=task.folder,
        files=files,
        statuses=Counter(table["status"].to_pylist()),
        left_out=[whole[session] for session in sorted(whole)],
        branches_left_out=+branches,
        problems=Counter(problem.kind for _, problem in samples.problems),
        sessions=tuple(sorted(held)),
        lengths=table["n_tokens"].to_pylist(),
        versions=(low.as_py(), high.as_py()) if low.is_valid else None,
        tokenizers=_texts(table, "tokenizer_sha256"),
        templates=_texts(table, "template_sha256"),
    )


def _texts(table: pa.Table, name: str) -> frozenset[Any]:
    return frozenset(one for one in table[name].unique().to_pylist() if one is not None)
