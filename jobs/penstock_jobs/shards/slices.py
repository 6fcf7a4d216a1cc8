"""A slice of a shard: whole groups, which one worker makes from events to parts.

Plain sessions become columns at once; every other one is read as a conversation.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import Bucket, RowGroupMemory, read_bucket
from penstock.lake.lake import Lake
from penstock.settings import MIB, Settings
from penstock.shards.manifest import PartFile
from penstock.shards.schema import SHARD_ROWS, SORTED_BY
from penstock.shards.validation import ShardValidator
from penstock.shards.writer import PartLimits, PartWriter
from penstock_jobs.shards.conversation import Conversation
from penstock_jobs.shards.conversation_reader import read_conversation
from penstock_jobs.shards.plain_rows import PlainRows
from penstock_jobs.shards.plain_sessions import PlainSession
from penstock_jobs.shards.plan import left_out_rows
from penstock_jobs.shards.preferences import Correction, PreferenceSources, find_corrections
from penstock_jobs.shards.recipe import Preferences, Tokens
from penstock_jobs.shards.registration import AnnouncingStore
from penstock_jobs.shards.rendered_branches import Renderer, open_renderer
from penstock_jobs.shards.samples import SampleOptions, SampleRows
from penstock_jobs.shards.session_events import COLUMNS, Event, events_by_session, find_redacted
from penstock_jobs.shards.token_credit import (
    CallNames,
    EditMark,
    TokenRewards,
    TrainedCall,
    edit_marks,
    session_rewards,
    token_rewards,
)

_ORDER = [(name, "ascending") for name in SORTED_BY]
_GROUPS_BYTES_MAX = 64 * MIB
#: The columns of a sample that the plan decides, by their names there.
_PLANNED = {name: name for name in ("group_id", "reward", "advantage", "split")}
_PLANNED |= {"reward_components": "components", "loss_weight": "weight"}
_CREDITED = ["session_id", "chain", "reward", "credits"]
_COUNTED = [
    *("session_id", "status", "n_tokens", "min_policy_version", "max_policy_version"),
    "token_source",
    *("tokenizer_sha256", "template_sha256"),
]
#: Of these, those in which a few texts stand again and again.
_FEW = {"status", "token_source", "tokenizer_sha256", "template_sha256"}


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
    #: Rows of `ShardPlan.chosen` of whole groups, and the sessions to read for them.
    chosen: pa.Table = field(repr=False)
    bucket: Bucket
    chains: Mapping[str, str] = field(repr=False)
    consents: Mapping[str, str] = field(repr=False)
    copies: Mapping[str, frozenset[str]] = field(repr=False)
    #: Of all sessions.
    tenant: str
    preferences: Preferences
    #: What came later is not looked at.
    as_of_us: int


@dataclass(frozen=True)
class SliceResult:
    """The parts of a slice, and what became of its sessions and branches."""

    files: list[PartFile]
    #: The columns of the samples that the manifest is made of.
    samples: pa.Table
    #: Sessions that have no rows; and branches, by reason.
    left_out: pa.Table
    branches_left_out: Counter[str]
    #: Problems with events, by kind. Their sessions may have rows all the same.
    problems: Counter[str]
    #: Rendered sessions whose engine gave ids that the tokenizer does not have.
    strange: list[str]


def make_slice(task: SliceTask) -> SliceResult:
    """Runs on a worker. If it runs again, it writes the same bytes to the same names. Raises
    ShardInvalid, and what reading and rendering raise."""
    with Lake(task.settings) as lake:
        columns = None if task.preferences.edits else COLUMNS
        rows = read_bucket(lake, task.bucket, columns, groups_of_build(task.owner))
        with _collector_paused():
            samples, table = slice_samples(task, rows)
        routes = samples.routes(plain=table["sample_id"])
        table = pa.concat_tables([table, samples.table()])
        sessions = task.chosen["session_id"].combine_chunks()
        planned = task.chosen.take(pc.index_in(table["session_id"], value_set=sessions))
        for name, planned_name in _PLANNED.items():
            column = SHARD_ROWS.field(name)
            values = planned[planned_name].cast(column.type)
            table = table.set_column(SHARD_ROWS.get_field_index(name), column, values)
        order = pc.sort_indices(table, sort_keys=_ORDER)
        if not pc.all(pc.equal(order, pa.array(np.arange(len(order), dtype=np.uint64)))).as_py():
            table, routes = table.take(order), None if routes is None else routes.take(order)
        ShardValidator().check(table, routes)
        store = AnnouncingStore(lake.store, lake.database, task.owner)
        with PartWriter(store, task.folder, task.limits, routed=routes is not None) as writer:
            if table.num_rows:
                writer.write(table, routes)
    without_rows = {*sessions.to_pylist()} - {*table["session_id"].to_pylist()}
    reasons = dict.fromkeys(without_rows, "nothing_written")
    branches: Counter[str] = Counter()
    for refused in samples.left_out:
        branches[refused.reason] += refused.branches
        if refused.session_id in without_rows:
            reasons[refused.session_id] = refused.reason
    details = {name: problem.detail or problem.kind for name, problem in samples.problems[::-1]}
    names = sorted(reasons)
    left_out = (names, [reasons[name] for name in names], [details.get(name) for name in names])
    counted = table.select(_COUNTED)
    for place, name in enumerate(_COUNTED):
        if name in _FEW:
            counted = counted.set_column(place, name, counted[name].dictionary_encode())
    return SliceResult(
        files=writer.files,
        samples=counted,
        left_out=left_out_rows(*(pa.array(column, pa.string()) for column in left_out)),
        branches_left_out=+branches,
        problems=Counter(problem.kind for _, problem in samples.problems),
        strange=samples.strange,
    )


def slice_samples(task: SliceTask, rows: pa.Table) -> tuple[SampleRows, pa.Table]:
    """What becomes of sessions that are read as conversations, and the rows of the plain ones."""
    tokens = task.tokens
    renderer = _renderer(tokens, task.directory)
    options = SampleOptions(
        tokens.source,
        tokens.max_length,
        tokenizer_id=tokens.tokenizer,
        other_tokenizer=tokens.other_tokenizer,
    )
    samples = SampleRows(options, renderer)
    corrections: dict[str, list[Correction]] = {}
    if task.preferences.edits:
        horizon_s, chained = task.preferences.horizon_s, task.chains
        corrections = find_corrections(
            rows, task.tenant, task.as_of_us, horizon_s=horizon_s, chains=chained
        )
    credits = _SliceCredits(task.chosen, rows)
    redacted = find_redacted(rows)
    plain = SHARD_ROWS.empty_table()
    if options.source != "render":
        members = Counter(task.chains.values())
        alone = {name for name in credits.chains if members[task.chains[name]] == 1}
        alone = {name for name in alone if task.chains[name] == name}
        wanted = alone - task.copies.keys() - corrections.keys()
        makers = PlainRows(samples.expected, options, task.consents, credits.of_plain)
        plain = makers.of(rows, redacted, wanted)
    is_plain = pc.is_in(rows["session_id"], plain["session_id"].combine_chunks())
    others = pc.invert(is_plain)
    events = events_by_session(rows.filter(others), redacted.filter(others))
    if events:
        chains = _SliceChains(task, events, rows.filter(is_plain))
        chains.add_to(samples, credits, corrections)
    return samples, plain


@dataclass(frozen=True)
class _SliceChains:
    """All that is not plain."""

    task: SliceTask
    events: Mapping[str, list[Event]]
    #: A fork may have been made from one of these.
    plain: pa.Table

    def add_to(
        self,
        samples: SampleRows,
        credits: "_SliceCredits",
        corrections: Mapping[str, Sequence[Correction]],
    ) -> None:
        chains: dict[str, list[str]] = {}
        for session in self.events.keys() & self.task.chains.keys():
            chains.setdefault(self.task.chains[session], []).append(session)
        for chain in sorted(chains):
            members = sorted(chains[chain])
            conversations = [self._conversation(name, self.events[name]) for name in members]
            samples.add_chain(
                conversations,
                self.task.consents,
                chosen=credits.chains.keys(),
                rollout_id=chain,
                credit=credits.of_chain(chain),
                sources=PreferenceSources(corrections, self._origins(conversations)),
            )

    def _conversation(self, session: str, events: list[Event]) -> Conversation:
        copied = self.task.copies.get(session, frozenset())
        return read_conversation(session, events, copied=copied)

    def _origins(self, conversations: Sequence[Conversation]) -> dict[str, Conversation]:
        origins: dict[str, Conversation] = {}
        for fork in conversations:
            origin = fork.start.parent_session
            if fork.start.link == "fork" and origin is not None:
                events = self.events.get(origin) or _events_of(origin, self.plain)
                if events:
                    origins[fork.session_id] = self._conversation(origin, events)
        return origins


def _events_of(session: str, rows: pa.Table) -> list[Event]:
    own = rows.filter(pc.equal(rows["session_id"], session))
    return events_by_session(own).get(session, [])


class _SliceCredits:
    """What edits and turns added to the rewards of a slice's chosen sessions."""

    def __init__(self, chosen: pa.Table, rows: pa.Table) -> None:
        sessions, chains, rewards, credits = (
            chosen[name].to_pylist() for name in ("session_id", "chain", "reward", "credits")
        )
        self.chains: dict[str, str] = dict(zip(sessions, chains, strict=True))
        self._credits: dict[str, Any] = dict(zip(sessions, credits, strict=True))
        self._rewards: dict[str, float | None] = dict(zip(chains, rewards, strict=True))
        rewarded = any(reward is not None for reward in rewards)
        self._marks: dict[str, list[EditMark]] = edit_marks(rows) if rewarded else {}
        self._moments = rows["ts"].cast(pa.int64()).combine_chunks() if rewarded else None

    def of_chain(self, chain: str) -> Any:
        reward = self._rewards.get(chain)
        if reward is None:
            return None
        return partial(token_rewards, reward=reward, credits=self._credits, marks=self._marks)

    def of_plain(self, session: PlainSession, ends: Sequence[int]) -> TokenRewards | None:
        """`ends` are those of what its calls wrote."""
        name = session.session_id
        reward = self._rewards[self.chains[name]]
        if reward is None or self._moments is None:
            return None
        calls = [
            TrainedCall(
                end - 1, call.turn, CallNames(call.names, self._moments[call.row].as_py(), call.seq)
            )
            for call, end in zip(session.calls, ends, strict=True)
        ]
        marks = self._marks.get(name, ())
        return session_rewards(calls, reward=reward, credits=self._credits[name] or (), marks=marks)


@lru_cache(maxsize=1)
def groups_of_build(_owner: str) -> RowGroupMemory:
    """A worker's, from slice to slice."""
    return RowGroupMemory(_GROUPS_BYTES_MAX)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A slice makes many objects at once, none of them in a ring: looking for rings among them, and
    among all that is imported, took a sixth of a build."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def _renderer(tokens: Tokens, directory: Path) -> Renderer | None:
    """Opening a tokenizer takes longer than rendering a session."""
    if tokens.tokenizer is None:
        return None
    template = directory / tokens.template if tokens.template else None
    return open_renderer(directory / tokens.tokenizer, template)
