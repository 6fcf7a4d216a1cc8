"""Building a shard: plan it, make slices on the executor, publish the files under their digest.

A slice is whole groups of the shard, made by one worker from events to parts. Files are announced
before they are written, so that collection removes files of killed builds.
"""

import dataclasses
import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from penstock.access.privacy.consents import SessionDecisions, newest_decision
from penstock.backends.audit.entry import OPERATOR
from penstock.backends.execution import open_executor
from penstock.backends.execution.executor import Executor
from penstock.core.errors import InvalidInput
from penstock.lake import LakeSettings
from penstock.lake.buckets import SessionId, bucket_of_sessions
from penstock.lake.catalog import intents_kept, name_snap, pinned
from penstock.lake.lake import Lake
from penstock.lake.session_filters import SessionFilters
from penstock.shards.batches import pack
from penstock.shards.manifest import (
    GONE_NAME,
    MANIFEST_NAME,
    Counts,
    Manifest,
    PartFile,
    PolicyRange,
    RewardReference,
    ShardFile,
    SnapshotReference,
    StoredShard,
    Tokenizer,
    check_digest,
    copy_part,
    files_of,
    part_name,
    read_manifest,
    routes_name,
    write_manifest,
)
from penstock.shards.shard import ShardDamaged, ShardMissing, shard_folder, staging_folder
from penstock.shards.writer import PartLimits
from penstock_jobs.shards.hints.sources import WRITTEN, writer_version
from penstock_jobs.shards.recipe import Recipe, Tokens, load_recipe
from penstock_jobs.shards.registration import announce_once, forget, mark_denied, register
from penstock_jobs.shards.rows.documents import build_documents
from penstock_jobs.shards.rows.hint_rows import HintFrame
from penstock_jobs.shards.rows.samples import TokenizerMismatch
from penstock_jobs.shards.rows.slices import (
    SliceResult,
    SliceTask,
    groups_of_build,
    make_slice,
    renderer_of,
)
from penstock_jobs.shards.selection.dictionary_codes import codes_of
from penstock_jobs.shards.selection.plan import (
    LeftOutSession,
    LeftOutSessions,
    NothingToBuild,
    ShardPlan,
    plan_shard,
)
from penstock_jobs.shards.selection.planned_sessions import ROWS_AT_ONCE
from penstock_jobs.shards.selection.session_facts import PinnedSessions, latest_snap

SLICE_EVENTS = 20_000
#: Example sessions kept per exclusion reason.
EXAMPLES_MAX = 5


class ShardBuild(msgspec.Struct, frozen=True):
    stored: StoredShard
    new: bool
    asked: int
    #: Counts by kind of problems with events. Their sessions may be in the shard.
    problems: Counter[str]
    branches_left_out: Counter[str]
    left_out: LeftOutSessions

    @property
    def manifest(self) -> Manifest:
        return self.stored.manifest


def build_shard(
    lake: Lake,
    executor: Executor,
    recipe: Recipe,
    *,
    tenant: str,
    by: str = OPERATOR,
    follow: Callable[[int, int], None] = lambda _done, _of: None,
) -> ShardBuild:
    """Plan, build and register a shard. `follow` gets the numbers of done and all slices."""
    settings = lake.settings.room(LakeSettings)
    hint_writer = _check_hints(lake, recipe)
    owner = uuid.uuid4().hex
    as_of: str | int = recipe.as_of
    if as_of == "latest":
        as_of = latest_snap(lake, tenant, recipe.staleness.channel)
    with (
        pinned(lake.database, as_of, renewed=True) as pin,
        intents_kept(lake.database, owner, settings.collection_grace_seconds),
    ):
        sessions = PinnedSessions(lake, executor, pin, tenant)
        decided = newest_decision(lake.database)
        by_folder: dict[str, SliceResult] = {}
        if recipe.text is not None:
            folder = f"{staging_folder(tenant)}/{owner}/00000"
            plan, by_folder[folder] = build_documents(sessions, recipe, owner, folder)
        else:
            plan = plan_shard(sessions, recipe)
            bounds = slice_bounds(plan)
            tasks = slice_tasks(sessions, recipe, plan, owner, bounds)
            for done in executor.run(make_slice, tasks):
                by_folder[done.task.folder] = done.result
                follow(len(by_folder), len(bounds) - 1)
            groups_of_build.cache_clear()  # where slices were made in this process
        # In the order of the shard.
        folders = sorted(by_folder, key=lambda folder: (len(folder), folder))
        results = [by_folder[folder] for folder in folders]
        left_out = LeftOutSessions.of([plan.left_out, *(result.left_out for result in results)])
        if not any(result.files for result in results):
            raise NothingToBuild(recipe=recipe.name, asked=plan.asked, why=str(left_out))
        _check_tokenizer(recipe.tokens, results)
        snapshot = _named_snapshot(lake, recipe, tenant, pin.snap)
        manifest = _manifest(recipe, plan, snapshot, results, left_out)
        manifest = replace(manifest, hint_writer=hint_writer)
        staged = [
            (f"{folder}/{file.name}", file)
            for folder, result in zip(folders, results, strict=True)
            for part in result.files
            for file in (part, part.routes)
            if file is not None
        ]
        stored = _publish(lake, tenant, manifest, owner, staged)
        held = (
            name
            for result in results
            for column in ("session_id", "hint_session_id")
            for name in result.samples[column].drop_null().to_pylist()
        )
        examples = left_out_examples(left_out)
        new = register(lake.database, stored, tenant, held, left_out=examples, by=by)
        if newest_decision(lake.database) != decided:  # newer than the plan
            _mark_denied(lake, tenant, plan)
        # Collection deletes what cannot be deleted now.
        for path, _ in staged:
            lake.store.delete(path)
        forget(lake.database, owner)
    problems = sum((result.problems for result in results), Counter[str]())
    branches = sum((result.branches_left_out for result in results), Counter[str]())
    return ShardBuild(stored, new, plan.asked, problems, branches, left_out)


def build_from_file(lake: Lake, recipe: Path, tenant: str, by: str) -> Manifest:
    loaded = load_recipe(recipe)
    with open_executor(lake.settings) as executor:
        return build_shard(lake, executor, loaded, tenant=tenant, by=by).manifest


def _check_hints(lake: Lake, recipe: Recipe) -> str | None:
    """Check before any work that hints can be placed and written. Returns who writes them.

    Raises InvalidInput, TemplateLimitReached."""
    if recipe.hints is None:
        return None
    if (renderer := renderer_of(recipe.tokens, recipe.directory.resolve())) is not None:
        HintFrame.of(renderer)
    return writer_version(lake.settings) if WRITTEN in recipe.hints.sources else None


def _mark_denied(lake: Lake, tenant: str, plan: ShardPlan) -> None:
    asked = pa.table({"session_id": plan.sessions.ids})
    decisions = SessionDecisions(lake, tenant, asked)
    for batch in asked.to_batches(ROWS_AT_ONCE):
        mark_denied(lake, tenant, decisions.of(batch["session_id"].to_pylist()).denied)


def left_out_examples(left_out: Iterable[LeftOutSession]) -> list[tuple[str, str]]:
    """Return the first few sessions of each reason, with the reason."""
    examples: dict[tuple[str, str], None] = {}
    counts: Counter[str] = Counter()
    for session_id, reason, _ in left_out:
        if counts[reason] < EXAMPLES_MAX and (session_id, reason) not in examples:
            examples[session_id, reason] = None
            counts[reason] += 1
    return list(examples)


def _named_snapshot(lake: Lake, recipe: Recipe, tenant: str, snap: int) -> SnapshotReference:
    """Name the snapshot, so that it is kept and the shard can be rebuilt."""
    sources = [recipe.canonical, recipe.query, str(snap), tenant]
    digest = hashlib.sha256("\0".join(sources).encode()).hexdigest()[:12]
    note = f"source of the shard {recipe.name}"
    name = name_snap(lake.database, recipe.as_of, f"shard-{digest}", snap, note)
    return SnapshotReference(name=name, snap=snap)


def _check_tokenizer(tokens: Tokens, results: Sequence[SliceResult]) -> None:
    """Detect another tokenizer by impossible ids, if the engine names none.

    A few broken ids are no proof, but most sessions are. Raises TokenizerMismatch."""
    strange = sorted(session for result in results for session in result.strange)
    if not strange:
        return
    from_engine = set[str]()
    for result in results:
        engine = result.samples.filter(pc.equal(result.samples["token_source"], "engine"))
        from_engine.update(engine["session_id"].to_pylist())
    if tokens.other_tokenizer == "refuse" and len(strange) > len(from_engine):
        whose = f"{len(strange)} sessions, such as {strange[0]},"
        raise TokenizerMismatch(whose=whose, why="it does not have their ids")


def _manifest(
    recipe: Recipe,
    plan: ShardPlan,
    snapshot: SnapshotReference,
    results: Sequence[SliceResult],
    left_out: LeftOutSessions,
) -> Manifest:
    samples = pa.concat_tables([result.samples for result in results]).unify_dictionaries()
    tokenizers = sorted(samples["tokenizer_sha256"].unique().drop_null().to_pylist())
    templates = samples["template_sha256"].unique().drop_null().to_pylist()
    if len(tokenizers) > 1:
        why = f"its sessions have tokens of {len(tokenizers)} tokenizers: {', '.join(tokenizers)}"
        raise InvalidInput(what=f"The recipe {recipe.name}", why=why)
    low, high = pc.min(samples["min_policy_version"]), pc.max(samples["max_policy_version"])
    rewards = []
    if recipe.target is not None:
        definition = recipe.target.definition
        rewards = [RewardReference(definition=definition.name, version=definition.version)]
    files: list[PartFile] = []  # numbered in the whole shard
    for part in (part for result in results for part in result.files):
        name = part_name(len(files))
        routes = part.routes and replace(part.routes, name=routes_name(name))
        files.append(replace(part, name=name, routes=routes))
    lengths = samples["n_tokens"].to_numpy()
    packed = pack(lengths, recipe.tokens.max_length) if recipe.tokens.pack else ()
    statuses = pc.value_counts(samples["status"]).to_pylist()
    excluded = left_out.reasons()
    hints = sum((result.hints for result in results), Counter[str]())
    counts = Counts(
        status=dict(sorted((each["values"], each["counts"]) for each in statuses)),
        excluded=dict(sorted(excluded.items())),
        pending=excluded["pending"],
        # Each session is in one slice. A set of all takes more memory than the plan.
        sessions=sum(len(result.samples["session_id"].unique()) for result in results),
        samples=sum(part.rows for part in files),
        tokens=sum(part.tokens for part in files),
        trainable=sum(part.trainable for part in files),
        packed_rows=len(packed),
        hints=dict(sorted(hints.items())),
    )
    return Manifest(
        name=recipe.name,
        recipe=recipe.canonical,
        query=recipe.query,
        snapshot=snapshot,
        seed=recipe.seed,
        rewards=rewards,
        policy=PolicyRange(min=low.as_py(), max=high.as_py()) if low.is_valid else None,
        counted_from=plan.counted_from,
        suites=dict(plan.suites),
        tokenizer=Tokenizer(sha256=tokenizers[0], id=recipe.tokens.tokenizer or ""),
        template_sha256=templates[0] if len(templates) == 1 else None,
        files=files,
        counts=counts,
        code_version=version("penstock"),
    )


def _publish(
    lake: Lake, tenant: str, manifest: Manifest, owner: str, staged: Sequence[tuple[str, ShardFile]]
) -> StoredShard:
    """Copy staged files to the shard's folder, the manifest last.

    A registered shard keeps its files, except damaged and lost ones."""
    store, database = lake.store, lake.database
    stored = StoredShard(store, shard_folder(tenant, manifest.id), manifest)
    for (path, file), final in zip(staged, files_of(manifest), strict=True):
        to = stored.path(final)
        if not announce_once(database, tenant, manifest.id, to, owner):
            with suppress(ShardDamaged):
                check_digest(store, to, file)
                continue
        copy_part(store, path, store, to, file)
    name = f"{stored.folder}/{MANIFEST_NAME}"
    is_new = announce_once(database, tenant, manifest.id, name, owner)
    with suppress(ShardMissing, ShardDamaged):
        if not is_new and read_manifest(store, stored.folder, manifest.id).id == manifest.id:
            return stored
    write_manifest(store, stored.folder, manifest)
    store.delete(f"{stored.folder}/{GONE_NAME}")  # it may have been dropped before
    return stored


def slice_bounds(plan: ShardPlan) -> list[int]:
    """Return row offsets of the slices. A group is never split."""
    groups, numbers = codes_of(plan.chosen["group_id"]), plan.numbers
    chunks = plan.sessions.column("events").chunks
    events = np.concatenate([np.empty(0, np.int32), *(chunk.cast(pa.int32()) for chunk in chunks)])
    bounds = [0]
    while (first := bounds[-1]) < len(groups):
        # Each session has an event, so these rows suffice; then extend to the end of the group.
        ends = np.cumsum(events[numbers[first : first + SLICE_EVENTS]])
        last = first + min(int(np.searchsorted(ends, SLICE_EVENTS)), len(ends) - 1)
        bounds.append(last + int(np.searchsorted(groups[last:], groups[last], side="right")))
    return bounds


def slice_tasks(
    sessions: PinnedSessions, recipe: Recipe, plan: ShardPlan, owner: str, bounds: Sequence[int]
) -> Iterator[SliceTask]:
    planned, links = plan.sessions, plan.sessions.links
    tenant = sessions.tenant
    limits = PartLimits(recipe.output.file_bytes or PartLimits().part_bytes_target)
    as_of_us = sessions.snapshot_us()
    own = dataclasses.replace(recipe, target=None, directory=recipe.directory.resolve())
    filters = SessionFilters(sessions.lake.database, bytes_max=inf)
    for number, (start, end) in enumerate(pairwise(bounds)):
        piece = plan.rows(start, end)
        names = piece["session_id"].to_pylist()
        chain = sorted(links.whole_chains(names))
        # A fork is compared with the session that it was made from.
        forked = {links.forks[name] for name in names if name in links.forks}
        read = [SessionId(tenant, member) for member in sorted({*chain, *forked})]
        consents = dict(zip(names, planned.consents(plan.numbers[start:end]), strict=True))
        consents |= {name: planned.consent(name) for name in {*chain}.difference(names)}
        yield SliceTask(
            settings=sessions.lake.settings,
            owner=owner,
            folder=f"{staging_folder(tenant)}/{owner}/{number:05d}",
            limits=limits,
            recipe=own,
            chosen=piece,
            bucket=bucket_of_sessions(sessions.pin, number, read, filters),
            chains={name: links.chain(name) for name in chain},
            consents=consents,
            repeated_events={
                name: plan.repeated_events[name] for name in chain if name in plan.repeated_events
            },
            tenant=tenant,
            as_of_us=as_of_us,
        )
