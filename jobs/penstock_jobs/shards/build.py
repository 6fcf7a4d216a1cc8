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

from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.execution import Executor
from penstock.lake.buckets import SessionId, plan_sessions
from penstock.lake.catalog import Pin, content_snap, name_snap, pinned
from penstock.lake.commit import intents_kept
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock.shards.balance import pack
from penstock.shards.errors import ShardDamaged, ShardMissing
from penstock.shards.files import check_digest, copy_part, part_name, routes_name
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
from penstock.shards.writer import PartLimits
from penstock_jobs.shards.build_slices import SliceResult, SliceTask, make_slice
from penstock_jobs.shards.errors import NothingToBuild
from penstock_jobs.shards.exclusion.decision import ExclusionSources, open_sources
from penstock_jobs.shards.exclusion.session_buckets import SessionBuckets
from penstock_jobs.shards.plan import LeftOutSession, ShardPlan, count_reasons, plan_shard
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.registration import announce_once, forget, register
from penstock_jobs.shards.session_facts import SnapshotQueries

#: Called after each slice with how many are done, and how many there are.
SliceProgress = Callable[[int, int], None]
_SNAPSHOT_HEX = 12
#: Slices lie here until the shard is published.
STAGING = "shards/staging"


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
        pinned(lake.database, as_of, settings.reader_lease_seconds, renewed=True) as pin,
        intents_kept(lake.database, owner, settings.collection_grace_seconds),
    ):
        queries = SnapshotQueries(lake, pin.snap, tenant)
        sources = open_sources(lake, executor, pin, recipe, queries)
        plan = plan_shard(queries, recipe, sources)
        tasks = _tasks(sources.buckets, recipe, plan, owner)
        results = _run(executor, tasks, follow)
        left_out = sorted([*plan.left_out, *(one for made in results for one in made.left_out)])
        if not any(made.files for made in results):
            why = count_reasons(left_out)
            raise NothingToBuild(recipe=recipe.name, asked=plan.asked, why=why)
        snapshot = _name_snapshot(lake, recipe, pin, tenant)
        manifest = _manifest(recipe, sources, snapshot, results, left_out)
        sessions = sorted({session for made in results for session in made.sessions})
        publication = _Publication(lake, manifest, owner)
        publication.put_files(results)
        new = register(lake.database, manifest, tenant, sessions)
        publication.clear(results)
    return ShardBuild(
        manifest,
        new,
        plan.asked,
        problems=sum((made.problems for made in results), Counter()),
        branches_left_out=sum((made.branches_left_out for made in results), Counter()),
        left_out=left_out,
    )


# Slices


def _tasks(buckets: SessionBuckets, recipe: Recipe, plan: ShardPlan, owner: str) -> list[SliceTask]:
    lake = buckets.lake
    slices = list(plan.slices())
    groups = [[SessionId(buckets.tenant, session) for session in one.sessions] for one in slices]
    limits = _limits(recipe)
    facts = plan.facts
    return [
        SliceTask(
            settings=lake.settings,
            owner=owner,
            folder=f"{STAGING}/{owner}/{piece.number:05d}",
            limits=limits,
            tokens=recipe.tokens,
            directory=recipe.directory.resolve(),
            slice=piece,
            bucket=bucket,
            chains={session: facts.links.chain(session) for session in piece.sessions},
            consents={session: facts.consent(session) for session in piece.sessions},
            copies={one: plan.copies[one] for one in piece.sessions if one in plan.copies},
        )
        for piece, bucket in zip(slices, plan_sessions(lake, buckets.pin, groups, 0), strict=True)
    ]


def _run(
    executor: Executor, tasks: Sequence[SliceTask], follow: SliceProgress
) -> list[SliceResult]:
    """The results in the order of the shard, whichever slice is done first."""
    results: dict[int, SliceResult] = {}
    for done in executor.run(make_slice, tasks):
        results[done.task.slice.number] = done.result
        follow(len(results), len(tasks))
    return [results[number] for number in sorted(results)]


def _limits(recipe: Recipe) -> PartLimits:
    limits = PartLimits()
    sizes = recipe.output
    return PartLimits(
        sizes.file_bytes or limits.part_bytes_target,
        limits.part_rows_target,
        min(sizes.row_group_bytes or limits.row_group_bytes_max, limits.row_group_bytes_max),
    )


# The manifest


def _name_snapshot(lake: Lake, recipe: Recipe, pin: Pin, tenant: str) -> SnapshotReference:
    """Named snapshots are kept, so that the shard can be built again."""
    facts = [recipe.canonical, recipe.query, str(pin.snap), tenant]
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:_SNAPSHOT_HEX]
    note = f"what the shard {recipe.name} was built from"
    name = name_snap(lake.database, recipe.as_of, f"shard-{digest}", pin.snap, note)
    return SnapshotReference(name=name, snap=pin.snap)


def _manifest(
    recipe: Recipe,
    sources: ExclusionSources,
    snapshot: SnapshotReference,
    results: list[SliceResult],
    left_out: list[LeftOutSession],
) -> Manifest:
    versions = [made.versions for made in results if made.versions is not None]
    tokenizers = sorted({name for made in results for name in made.tokenizers})
    templates = sorted({name for made in results for name in made.templates})
    if len(tokenizers) > 1:
        why = f"its sessions have tokens of {len(tokenizers)} tokenizers: {', '.join(tokenizers)}"
        raise InvalidInput(what=f"The recipe {recipe.name}", why=why)
    policy = None
    if versions:
        policy = PolicyRange(
            min=min(low for low, _ in versions), max=max(high for _, high in versions)
        )
    rewards = []
    if recipe.target is not None:
        definition = recipe.target.definition
        rewards = [RewardReference(definition=definition.name, version=definition.version)]
    files = _numbered(results)
    return Manifest(
        name=recipe.name,
        recipe=recipe.canonical,
        query=recipe.query,
        snapshot=snapshot,
        seed=recipe.seed,
        rewards=rewards,
        policy=policy,
        counted_from=sources.served.current if sources.served else None,
        suites=dict(sorted((suite.suite, suite.version) for suite in sources.suites)),
        tokenizer=Tokenizer(sha256=tokenizers[0], id=recipe.tokens.tokenizer or ""),
        template_sha256=templates[0] if len(templates) == 1 else None,
        files=files,
        counts=_counts(recipe, results, files, left_out),
        code_version=version("penstock"),
    )


def _numbered(results: list[SliceResult]) -> list[PartFile]:
    """The parts of all slices, by their numbers in the whole shard."""
    files: list[PartFile] = []
    for made in results:
        for part in made.files:
            name = part_name(len(files))
            routes = part.routes and replace(part.routes, name=routes_name(name))
            files.append(replace(part, name=name, routes=routes))
    return files


def _counts(
    recipe: Recipe,
    results: list[SliceResult],
    files: list[PartFile],
    left_out: list[LeftOutSession],
) -> Counts:
    lengths = [length for made in results for length in made.lengths]
    packed = pack(lengths, recipe.tokens.max_length).tokens if recipe.tokens.pack else ()
    excluded = Counter(one.reason for one in left_out)
    return Counts(
        status=dict(sorted(sum((made.statuses for made in results), Counter()).items())),
        excluded=dict(sorted(excluded.items())),
        pending=excluded["pending"],
        sessions=sum(len(made.sessions) for made in results),
        samples=sum(part.rows for part in files),
        tokens=sum(part.tokens for part in files),
        trainable=sum(part.trainable for part in files),
        packed_rows=len(packed),
    )


# Publication


@dataclass(frozen=True)
class _Publication:
    """Moves staged files to the place that the shard's id names."""

    lake: Lake
    manifest: Manifest
    #: Of the announced names.
    owner: str

    def put_files(self, results: list[SliceResult]) -> None:
        """The files, and the manifest last."""
        staged = ((made.folder, part) for made in results for part in made.files)
        for (folder, part), final in zip(staged, self.manifest.files, strict=True):
            self._put(f"{folder}/{part.name}", part, final.name)
            if part.routes and final.routes:
                self._put(f"{folder}/{part.routes.name}", part.routes, final.routes.name)
        if self._announce(manifest_name(self.manifest.id)) or not self._has_manifest():
            write_manifest(self.lake.store, self.manifest)

    def clear(self, results: list[SliceResult]) -> None:
        """Delete what was staged. Collection deletes later what cannot be deleted now."""
        for made in results:
            for part in made.files:
                self.lake.store.delete(f"{made.folder}/{part.name}")
                if part.routes:
                    self.lake.store.delete(f"{made.folder}/{part.routes.name}")
        forget(self.lake.database, self.owner)

    def _put(self, source: str, part: PartFile | RoutesFile, name: str) -> None:
        """A shard that is registered keeps its files, except damaged and lost ones."""
        store = self.lake.store
        to = f"{folder_of(self.manifest.id)}/{name}"
        if not self._announce(to):
            with suppress(ShardDamaged):
                check_digest(store, to, part)
                return
        copy_part(store, source, store, to, part)

    def _announce(self, name: str) -> bool:
        return announce_once(self.lake.database, self.manifest.id, name, self.owner)

    def _has_manifest(self) -> bool:
        try:
            return read_manifest(self.lake.store, self.manifest.id).id == self.manifest.id
        except (ShardMissing, ShardDamaged):
            return False
