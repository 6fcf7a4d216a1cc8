"""Building a shard: plan it, make slices on the executor, publish the files under their digest.

A shard becomes visible when all of it is there. Files are announced before they are written. A
build that was cut off leaves announced files behind, which collection clears away.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.execution import Executor
from penstock.lake.catalog import content_snap, name_snap, pinned
from penstock.lake.commits import intents_kept
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock.shards.balance import pack
from penstock.shards.errors import ShardDamaged, ShardMissing
from penstock.shards.files import check_digest, copy_part, files_of, part_name, routes_name
from penstock.shards.manifest import (
    Counts,
    Manifest,
    PartFile,
    PolicyRange,
    RewardReference,
    RoutesFile,
    SnapshotReference,
    Tokenizer,
    folder_of,
    manifest_name,
    read_manifest,
    write_manifest,
)
from penstock_jobs.shards.build_slices import SliceResult, make_slice, slice_tasks
from penstock_jobs.shards.errors import NothingToBuild
from penstock_jobs.shards.plan import LeftOutSession, ShardPlan, count_reasons, plan_shard
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.registration import announce_once, forget, register
from penstock_jobs.shards.session_facts import PinnedSessions

#: Called after each slice with how many are done, and how many there are.
SliceProgress = Callable[[int, int], None]
#: Where a worker wrote it, and what it is.
StagedFile = tuple[str, PartFile | RoutesFile]
_SNAPSHOT_HEX = 12


@dataclass(frozen=True)
class ShardBuild:
    manifest: Manifest
    #: False where the same shard was there before.
    new: bool
    #: How many sessions the query named.
    asked: int
    #: Problems with events, by kind. Their sessions may be in the shard all the same.
    problems: Counter[str] = field(default_factory=Counter)
    branches_left_out: Counter[str] = field(default_factory=Counter)
    left_out: list[LeftOutSession] = field(default_factory=list)


def build_shard(
    lake: Lake,
    executor: Executor,
    recipe: Recipe,
    *,
    tenant: str,
    follow: SliceProgress = lambda _done, _of: None,
) -> ShardBuild:
    """Raises InvalidInput, RewardsPending, NothingToBuild, ShardInvalid, SnapshotUnknown, and what
    the query and the executor raise."""
    settings = lake.settings.room(LakeSettings)
    owner = uuid.uuid4().hex
    as_of = content_snap(lake.database) if recipe.as_of == "latest" else recipe.as_of
    with (
        pinned(lake.database, as_of, renewed=True) as pin,
        intents_kept(lake.database, owner, settings.collection_grace_seconds),
    ):
        sessions = PinnedSessions(lake, executor, pin, tenant)
        plan = plan_shard(sessions, recipe)
        tasks = slice_tasks(sessions, recipe, plan, owner)
        finished: dict[int, SliceResult] = {}
        for done in executor.run(make_slice, tasks):
            finished[done.task.number] = done.result
            follow(len(finished), len(tasks))
        # In the order of the shard, whichever slice was done first.
        results = [finished[number] for number in sorted(finished)]
        left_out = sorted([*plan.left_out, *(row for made in results for row in made.left_out)])
        if not any(made.files for made in results):
            why = count_reasons(left_out)
            raise NothingToBuild(recipe=recipe.name, asked=plan.asked, why=why)
        # Named snapshots are kept, so that the shard can be built again.
        sources = [recipe.canonical, recipe.query, str(pin.snap), tenant]
        digest = hashlib.sha256("\0".join(sources).encode()).hexdigest()[:_SNAPSHOT_HEX]
        note = f"what the shard {recipe.name} was built from"
        name = name_snap(lake.database, recipe.as_of, f"shard-{digest}", pin.snap, note)
        snapshot = SnapshotReference(name=name, snap=pin.snap)
        manifest = _manifest(recipe, plan, snapshot, results, left_out)
        staged = [
            (f"{made.folder}/{file.name}", file)
            for made in results
            for part in made.files
            for file in (part, part.routes)
            if file is not None
        ]
        _publish(lake, manifest, owner, staged)
        ids = pa.concat_tables([made.samples for made in results])["session_id"].unique()
        new = register(lake.database, manifest, tenant, sorted(ids.to_pylist()))
        # Collection deletes later what cannot be deleted now.
        for path, _ in staged:
            lake.store.delete(path)
        forget(lake.database, owner)
    return ShardBuild(
        manifest,
        new,
        plan.asked,
        problems=sum((made.problems for made in results), Counter()),
        branches_left_out=sum((made.branches_left_out for made in results), Counter()),
        left_out=left_out,
    )


def _manifest(
    recipe: Recipe,
    plan: ShardPlan,
    snapshot: SnapshotReference,
    results: Sequence[SliceResult],
    left_out: Sequence[LeftOutSession],
) -> Manifest:
    samples = pa.concat_tables([made.samples for made in results])
    tokenizers = sorted(samples["tokenizer_sha256"].unique().drop_null().to_pylist())
    templates = samples["template_sha256"].unique().drop_null().to_pylist()
    if len(tokenizers) > 1:
        why = f"its sessions have tokens of {len(tokenizers)} tokenizers: {', '.join(tokenizers)}"
        raise InvalidInput(what=f"The recipe {recipe.name}", why=why)
    low, high = pc.min(samples["min_policy_version"]), pc.max(samples["max_policy_version"])
    policy = PolicyRange(min=low.as_py(), max=high.as_py()) if low.is_valid else None
    rewards = []
    if recipe.target is not None:
        definition = recipe.target.definition
        rewards = [RewardReference(definition=definition.name, version=definition.version)]
    files: list[PartFile] = []  # numbered in the whole shard
    for part in (part for made in results for part in made.files):
        name = part_name(len(files))
        routes = part.routes and replace(part.routes, name=routes_name(name))
        files.append(replace(part, name=name, routes=routes))
    lengths = samples["n_tokens"].to_pylist()
    packed = pack(lengths, recipe.tokens.max_length).tokens if recipe.tokens.pack else ()
    excluded = Counter(session.reason for session in left_out)
    counts = Counts(
        status=dict(sorted(Counter(samples["status"].to_pylist()).items())),
        excluded=dict(sorted(excluded.items())),
        pending=excluded["pending"],
        sessions=len(samples["session_id"].unique()),
        samples=sum(part.rows for part in files),
        tokens=sum(part.tokens for part in files),
        trainable=sum(part.trainable for part in files),
        packed_rows=len(packed),
    )
    return Manifest(
        name=recipe.name,
        recipe=recipe.canonical,
        query=recipe.query,
        snapshot=snapshot,
        seed=recipe.seed,
        rewards=rewards,
        policy=policy,
        counted_from=plan.counted_from,
        suites=dict(plan.suites),
        tokenizer=Tokenizer(sha256=tokenizers[0], id=recipe.tokens.tokenizer or ""),
        template_sha256=templates[0] if len(templates) == 1 else None,
        files=files,
        counts=counts,
        code_version=version("penstock"),
    )


def _publish(lake: Lake, manifest: Manifest, owner: str, staged: Sequence[StagedFile]) -> None:
    """Copy staged files to the place that the shard's id names, and write the manifest last. A
    shard that is registered keeps its files, except damaged and lost ones."""
    store, folder = lake.store, folder_of(manifest.id)
    for (path, file), final in zip(staged, files_of(manifest), strict=True):
        to = f"{folder}/{final.name}"
        if not announce_once(lake.database, manifest.id, to, owner):
            with suppress(ShardDamaged):
                check_digest(store, to, file)
                continue
        copy_part(store, path, store, to, file)
    is_new = announce_once(lake.database, manifest.id, manifest_name(manifest.id), owner)
    with suppress(ShardMissing, ShardDamaged):
        if not is_new and read_manifest(store, manifest.id).id == manifest.id:
            return
    write_manifest(store, manifest)
