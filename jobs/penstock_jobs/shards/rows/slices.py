"""A slice of a shard: whole groups, which one worker makes from events to parts.

Plain sessions become columns at once; every other one is read as a conversation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.settings import MIB, Settings
from penstock.lake.buckets import Bucket, read_bucket
from penstock.lake.lake import Lake
from penstock.lake.segments import TableMemory
from penstock.shards.manifest import PartFile
from penstock.shards.schema import SHARD_ROWS, SORTED_BY, Rows
from penstock.shards.validation import ShardValidator
from penstock.shards.writer import PartLimits, PartWriter
from penstock_jobs.rewards.runs import without_garbage_collection
from penstock_jobs.shards.conversation.conversation import Conversation
from penstock_jobs.shards.conversation.reader import read_conversation
from penstock_jobs.shards.conversation.session_events import (
    COLUMNS,
    events_by_session,
    find_redacted,
)
from penstock_jobs.shards.hints.finder import HintFinder
from penstock_jobs.shards.hints.hint import WriteHints
from penstock_jobs.shards.hints.sources import LEFT_TEXT, WRITTEN, HintWriter
from penstock_jobs.shards.recipe import Advantage, Recipe, Tokens
from penstock_jobs.shards.registration import AnnouncingStore
from penstock_jobs.shards.rows.engine_branches import Choice
from penstock_jobs.shards.rows.hint_rows import HintFrame, HintRows
from penstock_jobs.shards.rows.plain_rows import PlainRows
from penstock_jobs.shards.rows.plain_sessions import PlainSession
from penstock_jobs.shards.rows.preferences import Correction, find_corrections
from penstock_jobs.shards.rows.rendered_branches import Renderer, open_renderer
from penstock_jobs.shards.rows.samples import SampleRows
from penstock_jobs.shards.rows.token_credit import (
    CHOICE,
    CreditedCall,
    EditMark,
    TokenRewards,
    edit_marks,
    rollout_rewards,
    token_rewards,
)
from penstock_jobs.shards.selection.dictionary_codes import codes_of, encode_names
from penstock_jobs.shards.selection.plan import SPREAD_MIN, left_out_rows

_ORDER = [(name, "ascending") for name in SORTED_BY]
_GROUPS_BYTES_MAX = 64 * MIB
#: Columns of samples that the plan decides, with their names in the plan.
_PLANNED = {name: name for name in ("group_id", "reward", "advantage", "split")}
_PLANNED |= {"reward_components": "components", "loss_weight": "weight"}
#: Columns for the manifest, and those with few distinct texts.
_COUNTED = ["session_id", "hint_session_id", "n_tokens", "min_policy_version", "max_policy_version"]
_FEW = ["status", "token_source", "tokenizer_sha256", "template_sha256"]


@dataclass(frozen=True)
class SliceTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    owner: str = field(repr=False)
    #: The folder of parts until the shard is published.
    folder: str
    limits: PartLimits
    #: Without a target, and with an absolute folder.
    recipe: Recipe = field(repr=False)
    #: Rows of `ShardPlan.chosen` of whole groups, and facts of sessions to read.
    chosen: pa.Table = field(repr=False)
    bucket: Bucket
    chains: Mapping[str, str] = field(repr=False)
    consents: Mapping[str, str] = field(repr=False)
    repeated_events: Mapping[str, frozenset[str]] = field(repr=False)
    tenant: str
    as_of_us: int


class SliceResult(msgspec.Struct, frozen=True):
    files: list[PartFile]
    samples: pa.Table
    left_out: pa.Table
    branches_left_out: Counter[str] = msgspec.field(default_factory=Counter)
    #: Counts by kind of problems with events. Their sessions may have rows.
    problems: Counter[str] = msgspec.field(default_factory=Counter)
    #: Counts of hints by source, or by why they have no row, and of calls without a hint.
    hints: Counter[str] = msgspec.field(default_factory=Counter)
    #: Rendered sessions whose engine reported ids beyond the tokenizer's.
    strange: list[str] = msgspec.field(default_factory=list)


def make_slice(task: SliceTask) -> SliceResult:
    """Make a slice on a worker. A repeated run writes the same bytes to the same names.

    Raises ShardInvalid, and what reading and rendering raise."""
    with Lake(task.settings) as lake:
        columns = None if task.recipe.preferences.edits or task.recipe.hints else COLUMNS
        rows = read_bucket(lake, task.bucket, columns, groups_of_build(task.owner))
        with without_garbage_collection():
            writer = None
            if task.recipe.hints and WRITTEN in task.recipe.hints.sources:
                writer = HintWriter(lake.settings, lake.database, task.owner, task.tenant)
            samples, table = slice_samples(task, rows, writer.write if writer else None)
        routes = samples.routes(plain=table["sample_id"])
        table = pa.concat_tables([table, samples.table()])
        sessions = task.chosen["session_id"].combine_chunks()
        planned = task.chosen.take(pc.index_in(table["session_id"], value_set=sessions))
        if any(samples.choices):
            table, planned = _with_choices(table, planned, samples.choices, task.recipe.advantage)
        for name, planned_name in _PLANNED.items():
            column = SHARD_ROWS.field(name)
            values = planned[planned_name]
            if name == "advantage":
                values = _divided(values, table, task.recipe.advantage)
            values = values.cast(column.type)
            table = table.set_column(SHARD_ROWS.get_field_index(name), column, values)
        order = pc.sort_indices(table, sort_keys=_ORDER)
        if not pc.all(pc.equal(order, pa.array(np.arange(len(order), dtype=np.uint64)))).as_py():
            table, routes = table.take(order), None if routes is None else routes.take(order)
        ShardValidator().check(table, routes)
        store = AnnouncingStore(lake.store, lake.database, task.owner)
        with PartWriter(store, task.folder, task.limits, routed=routes is not None) as parts:
            if table.num_rows:
                parts.write(table, routes)
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
    return SliceResult(
        files=parts.files,
        samples=counted_columns(table),
        left_out=left_out_rows(*(pa.array(column, pa.string()) for column in left_out)),
        branches_left_out=+branches,
        problems=Counter(problem.kind for _, problem in samples.problems),
        hints=samples.hint_counts + (writer.counts if writer else Counter()),
        strange=samples.strange,
    )


def _with_choices(
    table: pa.Table, planned: pa.Table, choices: Sequence[Choice | None], asked: Advantage
) -> tuple[pa.Table, pa.Table]:
    """Make each answer a group, whose choices have rewards and advantages of their own.

    `choices` belong to the last rows."""
    names = ("group_id", "reward", "advantage")
    groups, rewards, advantages = columns = [planned[name].to_pylist() for name in names]
    token_rewards, credits = table["token_rewards"].to_pylist(), planned["credits"].to_pylist()
    for at, choice in enumerate(choices, table.num_rows - len(choices)):
        if choice is None:
            continue
        # Two spaces sort before whatever else begins with this name, so slices stay in order.
        groups[at] += f"  {choice.answer}"
        own = [each for each in credits[at] or () if each["kind"] == CHOICE]
        worth = {each["target"]: each["value"] for each in own}
        rewards[at] = reward = worth.get(choice.call_id)
        if reward is None:
            token_rewards[at] = advantages[at] = None
            continue
        token_rewards[at] = [{"pos": choice.end, "value": reward}] if reward else []
        if asked.kind != "none":
            known = np.array([worth[name] for name in choice.choices if name in worth])
            spread = known.std() if asked.spread and known.std() > SPREAD_MIN else 1.0
            advantages[at] = (reward - known.mean()) / spread
    for name, values in zip(names, columns, strict=True):
        planned = _replaced(planned, name, values)
    return _replaced(table, "token_rewards", token_rewards), planned


def _replaced(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    field = table.schema.field(name)
    place = table.schema.get_field_index(name)
    return table.set_column(place, field, pa.array(values, field.type))


def counted_columns(table: pa.Table) -> pa.Table:
    counted = table.select(_COUNTED)
    for name in _FEW:
        counted = counted.append_column(name, table[name].dictionary_encode())
    return counted


def _divided(advantages: pa.ChunkedArray, table: pa.Table, asked: Advantage) -> pa.ChunkedArray:
    """Divide advantages by the trained turns or tokens of their rollouts."""
    if asked.per == "session":
        return advantages
    rows = Rows(table)
    rollouts, sessions = (
        codes_of(encode_names(table[f"{key}_id"])) for key in ("rollout", "session")
    )
    counts = np.bincount(rollouts, rows.trained)
    if asked.per == "turn":
        of_rows = rows.spans.rows
        keys = np.stack([rollouts[of_rows], sessions[of_rows], rows.spans.numbers("turn")])
        turns = np.unique(keys[:, rows.trained_in_spans > 0], axis=1)
        counts = np.bincount(turns[0], minlength=len(counts))
    return pc.divide(advantages, pa.array(np.maximum(counts, 1.0)[rollouts]))


def slice_samples(
    task: SliceTask, rows: pa.Table, write: WriteHints | None = None
) -> tuple[SampleRows, pa.Table]:
    """Return samples of conversations, and rows of plain sessions."""
    recipe, tokens = task.recipe, task.recipe.tokens
    corrections: dict[str, list[Correction]] = {}
    if recipe.preferences.edits or (recipe.hints and LEFT_TEXT in recipe.hints.sources):
        horizon_s, chained = recipe.preferences.horizon_s, task.chains
        corrections = find_corrections(
            rows, task.tenant, task.as_of_us, horizon_s=horizon_s, chains=chained
        )
    finder, hint_rows = _hints_of(task, rows, corrections, write)
    samples = SampleRows(tokens, renderer_of(tokens, recipe.directory), hint_rows)
    credits = _SliceCredits(task.chosen, rows)
    redacted = find_redacted(rows)
    plain = SHARD_ROWS.empty_table()
    if tokens.source != "render" and finder is None:
        members = Counter(task.chains.values())
        alone = {name for name in credits.chains if task.chains[name] == name}
        alone = {name for name in alone if members[name] == 1}
        wanted = alone - task.repeated_events.keys() - corrections.keys()
        makers = PlainRows(samples.expected, tokens, task.consents, credits.of_plain)
        plain = makers.of(rows, redacted, wanted)
    is_plain = pc.is_in(rows["session_id"], plain["session_id"].combine_chunks())
    others = pc.invert(is_plain)
    events = events_by_session(rows.filter(others), redacted.filter(others))
    chains: dict[str, list[str]] = {}
    for session in sorted(events.keys() & task.chains.keys()):
        chains.setdefault(task.chains[session], []).append(session)

    def read(session: str) -> Conversation:
        known = events.get(session)
        if known is None:  # the origin of a fork may be plain
            own = rows.filter(pc.equal(rows["session_id"], session))
            known = events_by_session(own).get(session, [])
        return read_conversation(
            session, known, copied=task.repeated_events.get(session, frozenset())
        )

    for chain in sorted(chains):
        conversations = [read(session) for session in chains[chain]]
        forks = [each for each in conversations if each.start.link == "fork"]
        origins = {each.session_id: read(each.start.parent_session or "") for each in forks}
        samples.add_chain(
            conversations,
            task.consents,
            chosen=credits.chains.keys(),
            rollout_id=chain,
            # A reward has its place in a whole rollout, not in a few of its calls.
            credit=None if finder else credits.of_chain(chain),
            corrections=corrections if recipe.preferences.edits else {},
            origins=origins,
            hints=finder.of_chain(chain, conversations) if finder else {},
        )
    return samples, plain


def _hints_of(
    task: SliceTask,
    rows: pa.Table,
    corrections: Mapping[str, Sequence[Correction]],
    write: WriteHints | None,
) -> tuple[HintFinder, HintRows] | tuple[None, None]:
    if (asked := task.recipe.hints) is None:
        return None, None
    renderer = renderer_of(task.recipe.tokens, task.recipe.directory)
    assert renderer is not None  # checked by the recipe
    facts: dict[str, Any] = {name: getattr(task, name) for name in ("tenant", "as_of_us", "chains")}
    finder = HintFinder(rows, asked.sources, corrections=corrections, write=write, **facts)
    frame, length_max = HintFrame.of(renderer), task.recipe.tokens.max_length
    return finder, HintRows(asked, frame, length_max, finder.requests)


class _SliceCredits:
    """Credits of edits and turns in the rewards of a slice's chosen sessions."""

    def __init__(self, chosen: pa.Table, rows: pa.Table) -> None:
        sessions, chains, rewards, credits = (
            chosen[name].to_pylist() for name in ("session_id", "chain", "reward", "credits")
        )
        self.chains: dict[str, str] = dict(zip(sessions, chains, strict=True))
        self._credits: dict[str, Any] = dict(zip(sessions, credits, strict=True))
        self._rewards: dict[str, float | None] = dict(zip(chains, rewards, strict=True))
        rewarded = any(reward is not None for reward in rewards)
        self._marks: dict[str, list[EditMark]] = edit_marks(rows) if rewarded else {}
        self._moments = rows["ts"].cast(pa.int64()).combine_chunks()

    def of_chain(self, chain: str) -> Any:
        reward = self._rewards.get(chain)
        if reward is None:
            return None
        facts: dict[str, Any] = {"reward": reward, "credits": self._credits, "marks": self._marks}
        return partial(rollout_rewards, **facts)

    def of_plain(self, session: PlainSession, ends: Sequence[int]) -> TokenRewards | None:
        """Compute token rewards. `ends` are the ends of completions."""
        name = session.session_id
        reward = self._rewards[self.chains[name]]
        if reward is None:
            return None
        calls = [
            CreditedCall(
                call.names, self._moments[call.row].as_py(), call.seq, call.turn, (0, end - 1)
            )
            for call, end in zip(session.calls, ends, strict=True)
        ]
        [rewards] = token_rewards(
            {name: calls}, 1, reward=reward, credits=self._credits, marks=self._marks
        )
        return rewards


@lru_cache(maxsize=1)
def groups_of_build(_owner: str) -> TableMemory:
    """Return the row groups that a worker keeps between slices."""
    return TableMemory(_GROUPS_BYTES_MAX)


@cache
def renderer_of(tokens: Tokens, directory: Path) -> Renderer | None:
    """Open the renderer once: opening a tokenizer is slow. Raises InvalidInput, ExtraMissing."""
    if tokens.tokenizer is None:
        return None
    template = directory / tokens.template if tokens.template else None
    return open_renderer(directory / tokens.tokenizer, template)
