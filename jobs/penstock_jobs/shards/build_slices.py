"""The slices of a build: whole groups of a shard that one worker makes, from events to parts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import Bucket, SessionId, plan_sessions, read_bucket
from penstock.lake.lake import Lake
from penstock.settings import Settings
from penstock.shards.manifest import PartFile
from penstock.shards.schema import SHARD_ROWS, SORTED_BY
from penstock.shards.validation import ShardValidator
from penstock.shards.writer import PartLimits, PartWriter
from penstock_jobs.shards.conversation_reader import read_conversation
from penstock_jobs.shards.plan import LeftOutSession, ShardPlan
from penstock_jobs.shards.recipe import Recipe, Tokens
from penstock_jobs.shards.registration import AnnouncingStore
from penstock_jobs.shards.rendered_branches import Renderer, open_renderer
from penstock_jobs.shards.samples import SampleOptions, SampleRows
from penstock_jobs.shards.session_events import COLUMNS, events_by_session
from penstock_jobs.shards.session_facts import PinnedSessions

#: About so many events are a slice.
SLICE_EVENTS = 20_000
#: Slices lie here until the shard is published.
STAGING = "shards/staging"
_ORDER = [(name, "ascending") for name in SORTED_BY]
#: The columns of a sample that the plan decides, by their names there.
_PLANNED = {name: name for name in ("group_id", "reward", "advantage", "split")}
_PLANNED |= {"reward_components": "components", "loss_weight": "weight"}
_COUNTED = (
    "session_id", "status", "n_tokens", "min_policy_version", "max_policy_version",
    "tokenizer_sha256", "template_sha256",
)  # fmt: skip


@dataclass(frozen=True)
class SliceTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    #: Of the announced names.
    owner: str = field(repr=False)
    number: int
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


@dataclass(frozen=True)
class SliceResult:
    """The parts of a slice, and what became of its sessions and branches."""

    folder: str
    files: list[PartFile]
    #: The columns of the samples that the manifest is made of.
    samples: pa.Table
    #: Sessions that have no rows; and branches, by reason.
    left_out: list[LeftOutSession]
    branches_left_out: Counter[str]
    #: Problems with events, by kind. Their sessions may have rows all the same.
    problems: Counter[str]


def slice_tasks(
    sessions: PinnedSessions, recipe: Recipe, plan: ShardPlan, owner: str
) -> list[SliceTask]:
    """The plan's sessions, cut where groups end."""
    ids, groups = (plan.chosen[name].to_pylist() for name in ("session_id", "group_id"))
    facts, links = plan.facts, plan.facts.links
    bounds, events = [0], 0
    for place, session in enumerate(ids):
        if events >= SLICE_EVENTS and groups[place] != groups[place - 1]:
            bounds.append(place)
            events = 0
        events += facts.profiles[session].events
    bounds.append(len(ids))
    pieces = [plan.chosen.slice(start, end - start) for start, end in pairwise(bounds)]
    chains = [sorted(links.whole_chains(piece["session_id"].to_pylist())) for piece in pieces]
    to_read = [[SessionId(sessions.tenant, member) for member in members] for members in chains]
    defaults, sizes = PartLimits(), recipe.output
    limits = PartLimits(
        sizes.file_bytes or defaults.part_bytes_target,
        defaults.part_rows_target,
        min(sizes.row_group_bytes or defaults.row_group_bytes_max, defaults.row_group_bytes_max),
    )
    return [
        SliceTask(
            settings=sessions.lake.settings,
            owner=owner,
            number=number,
            folder=f"{STAGING}/{owner}/{number:05d}",
            limits=limits,
            tokens=recipe.tokens,
            directory=recipe.directory.resolve(),
            chosen=pieces[number],
            bucket=bucket,
            chains={name: links.chain(name) for name in chains[number]},
            consents={name: facts.consents.get(name, "unknown") for name in chains[number]},
            copies={name: plan.copies[name] for name in chains[number] if name in plan.copies},
        )
        for number, bucket in enumerate(plan_sessions(sessions.lake, sessions.pin, to_read, 0))
    ]


def make_slice(task: SliceTask) -> SliceResult:
    """Runs on a worker. If it runs again, it writes the same bytes to the same names. Raises
    ShardInvalid, and what reading and rendering raise."""
    with Lake(task.settings) as lake:
        samples = _samples(task, read_bucket(lake, task.bucket, COLUMNS))
        table, routes = _in_order(samples, task.chosen)
        ShardValidator().check(table, routes)
        store = AnnouncingStore(lake.store, lake.database, task.owner)
        with PartWriter(store, task.folder, task.limits, routed=routes is not None) as writer:
            if table.num_rows:
                writer.write(table, routes)
    return _result(task, samples, table, writer.files)


def _samples(task: SliceTask, rows: pa.Table) -> SampleRows:
    tokens = task.tokens
    renderer = _renderer(tokens, task.directory)
    samples = SampleRows(SampleOptions(tokens.source, tokens.max_length), renderer)
    events = events_by_session(rows)
    chosen = set(task.chosen["session_id"].to_pylist())
    chains: dict[str, list[str]] = {}
    for session in events:
        chains.setdefault(task.chains.get(session, session), []).append(session)
    for chain in sorted(chains):
        conversations = [
            read_conversation(member, events[member], copied=task.copies.get(member, frozenset()))
            for member in chains[chain]
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


def _in_order(samples: SampleRows, chosen: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """The samples with the plan's columns, in the order of a shard."""
    table, routes = samples.table(), samples.routes()
    at = pc.index_in(table["session_id"], value_set=chosen["session_id"].combine_chunks())
    of_session = chosen.take(at)
    for name, planned in _PLANNED.items():
        column_field = SHARD_ROWS.field(name)
        column = of_session[planned].cast(column_field.type)
        table = table.set_column(SHARD_ROWS.get_field_index(name), column_field, column)
    order = pc.sort_indices(table, sort_keys=_ORDER)
    return table.take(order), routes.take(order) if routes is not None else None


def _result(
    task: SliceTask, samples: SampleRows, table: pa.Table, files: list[PartFile]
) -> SliceResult:
    held = set(table["session_id"].to_pylist())
    details = {
        session: problem.detail or problem.kind for session, problem in reversed(samples.problems)
    }
    without_rows = {
        each.session_id: LeftOutSession(each.session_id, each.reason, details.get(each.session_id))
        for each in samples.left_out
        if each.session_id not in held
    }
    for session in set(task.chosen["session_id"].to_pylist()) - held - without_rows.keys():
        without_rows[session] = LeftOutSession(session, "nothing_written")
    branches: Counter[str] = Counter()
    for each in samples.left_out:
        branches[each.reason] += each.branches
    return SliceResult(
        folder=task.folder,
        files=files,
        samples=table.select(_COUNTED),
        left_out=[without_rows[session] for session in sorted(without_rows)],
        branches_left_out=+branches,
        problems=Counter(problem.kind for _, problem in samples.problems),
    )
