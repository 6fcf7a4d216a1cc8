"""Building a shard: plan, slices on the executor, files under the name that their content has.

Nothing is visible before all of it is there. Files are announced before they are written, and a
build that was cut off leaves announced files, which collection clears away.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version

import msgspec

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
    RewardNamed,
    RoutesFile,
    SnapshotNamed,
    Tokenizer,
    folder_of,
    manifest_name,
    read_manifest,
    write_manifest,
)
from penstock.shards.writer import PartLimits
from penstock_jobs.shards.errors import NothingToBuild
from penstock_jobs.shards.exclusion.decision import look_outside
from penstock_jobs.shards.plan import LeftOut, ShardPlan, counted, plan_shard
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.registration import Entry, announce_once, forget, register
from penstock_jobs.shards.session_facts import Asking
from penstock_jobs.shards.slices import Made, Task, make_slice

#: Told of each slice that is done, of how many.
Follow = Callable[[int, int], None]
_SNAPSHOT_HEX = 12
#: Where slices lie until the shard is published.
STAGING = "shards/staging"


@dataclass(frozen=True)
class ShardBuild:
    manifest: Manifest
    #: Whether no shard with these bytes was there before.
    new: bool
    asked: int
    #: What was wrong with events, by kind, though their session may be in the shard.
    problems: Counter[str] = field(default_factory=Counter)
    branches_left_out: Counter[str] = field(default_factory=Counter)
    #: By session.
    left_out: list[LeftOut] = field(default_factory=list)


def build_shard(
    lake: Lake,
    executor: Executor,
    recipe: Recipe,
    *,
    tenant: str,
    follow: Follow = lambda _done, _of: None,
) -> ShardBuild:
    """Raises InvalidInput, RewardsPending, NothingToBuild, ShardInvalid, SnapshotUnknown, what the
    query and the executor raise."""
    settings = lake.settings
    owner = uuid.uuid4().hex
    as_of = content_snap(lake.database) if recipe.as_of == "latest" else recipe.as_of
    with (
        pinned(
            lake.database, as_of, settings.room(LakeSettings).reader_lease_seconds, renewed=True
        ) as pin,
        intents_kept(lake.database, owner, settings.room(LakeSettings).collection_grace_seconds),
    ):
        asking = Asking(lake, pin.snap, tenant)
        outside = look_outside(lake, executor, pin, recipe, asking)
        plan = plan_shard(asking, recipe, outside)
        of = _Build(recipe, pin, tenant, owner)
        made = list(_make(lake, executor, plan, of, follow))
        _refuse_nothing(recipe, plan, made)
        name = f"shard-{_key_of(recipe, pin.snap, tenant)}"
        note = f"what the shard {recipe.name} was built from"
        snapshot = name_snap(lake.database, recipe.as_of, name, pin.snap, note)
        named = SnapshotNamed(name=snapshot, snap=pin.snap)
        staged, files = _named(made)
        manifest = _manifest(recipe, plan, made, files, named)
        new = _publish(lake, manifest, staged, of, _sessions(made))
    return ShardBuild(
        manifest,
        new,
        plan.asked,
        problems=sum((one.problems for one in made), Counter()),
        branches_left_out=sum((one.branches_left_out for one in made), Counter()),
        left_out=_left_out(plan, made),
    )


@dataclass(frozen=True)
class _Build:
    recipe: Recipe
    pin: Pin
    tenant: str
    #: Of the names that it announces.
    owner: str


def _make(
    lake: Lake, executor: Executor, plan: ShardPlan, of: _Build, follow: Follow
) -> Iterator[Made]:
    """In the order of the shard, whichever is done first."""
    recipe = of.recipe
    slices = list(plan.slices())
    groups = [[SessionId(of.tenant, one) for one in piece.sessions] for piece in slices]
    limits = _limits(recipe)
    facts = plan.facts
    tasks = (
        Task(
            settings=lake.settings,
            owner=of.owner,
            folder=f"{STAGING}/{of.owner}/{piece.number:05d}",
            limits=limits,
            tokens=recipe.tokens,
            directory=recipe.directory.resolve(),
            slice=piece,
            bucket=bucket,
            chains={one: facts.links.chain(one) for one in piece.sessions},
            consents={one: facts.consents.get(one, "unknown") for one in piece.sessions},
            copies={one: plan.copies[one] for one in piece.sessions if one in plan.copies},
        )
        for piece, bucket in zip(slices, plan_sessions(lake, of.pin, groups, 0), strict=True)
    )
    done: dict[int, Made] = {}
    for one in executor.run(make_slice, tasks):
        done[one.task.slice.number] = one.result
        follow(len(done), len(slices))
    yield from (done[number] for number in sorted(done))


def _limits(recipe: Recipe) -> PartLimits:
    limits = PartLimits()
    output = recipe.output
    return PartLimits(
        output.file_bytes or limits.part_bytes_target,
        limits.part_rows_target,
        min(output.row_group_bytes or limits.row_group_bytes_max, limits.row_group_bytes_max),
    )


def _refuse_nothing(recipe: Recipe, plan: ShardPlan, made: list[Made]) -> None:
    if any(one.files for one in made):
        return
    why = counted(_left_out(plan, made))
    raise NothingToBuild(recipe=recipe.name, asked=plan.asked, why=why)


def _left_out(plan: ShardPlan, made: list[Made]) -> list[LeftOut]:
    return sorted([*plan.left_out, *(out for one in made for out in one.left_out)])


def _named(made: list[Made]) -> tuple[list[tuple[str, PartFile]], list[PartFile]]:
    """Where each part lies now, and the parts by their numbers in the whole shard."""
    staged: list[tuple[str, PartFile]] = []
    files: list[PartFile] = []
    for one in made:
        for part in one.files:
            name = part_name(len(files))
            routes = part.routes and msgspec.structs.replace(part.routes, name=routes_name(name))
            staged.append((one.folder, part))
            files.append(msgspec.structs.replace(part, name=name, routes=routes))
    return staged, files


def _manifest(
    recipe: Recipe,
    plan: ShardPlan,
    made: list[Made],
    files: list[PartFile],
    snapshot: SnapshotNamed,
) -> Manifest:
    versions = [one.versions for one in made if one.versions is not None]
    tokenizers = sorted({name for one in made for name in one.tokenizers})
    templates = sorted({name for one in made for name in one.templates})
    if len(tokenizers) > 1:
        why = f"its sessions have tokens of {len(tokenizers)} tokenizers: {', '.join(tokenizers)}"
        raise InvalidInput(what=f"The recipe {recipe.name}", why=why)
    definition, outside = plan.definition, plan.outside
    return Manifest(
        name=recipe.name,
        recipe=recipe.canonical,
        query=recipe.query,
        snapshot=snapshot,
        seed=recipe.seed,
        rewards=[RewardNamed(definition=definition.name, version=definition.version)]
        if definition
        else [],
        policy=_policy(versions),
        counted_from=outside.served.current if outside.served else None,
        suites=dict(sorted(outside.suites.items())),
        tokenizer=Tokenizer(sha256=tokenizers[0], id=recipe.tokens.tokenizer or ""),
        template_sha256=templates[0] if len(templates) == 1 else None,
        files=files,
        counts=_counts(recipe, plan, made, files),
        code_version=version("penstock"),
    )


def _policy(versions: list[tuple[int, int]]) -> PolicyRange | None:
    if not versions:
        return None
    return PolicyRange(min=min(low for low, _ in versions), max=max(high for _, high in versions))


def _counts(recipe: Recipe, plan: ShardPlan, made: list[Made], files: list[PartFile]) -> Counts:
    lengths = [length for one in made for length in one.lengths]
    packed = pack(lengths, recipe.tokens.max_length).tokens if recipe.tokens.pack else ()
    excluded = Counter(one.reason for one in _left_out(plan, made))
    return Counts(
        status=dict(sorted(sum((one.statuses for one in made), Counter()).items())),
        excluded=dict(sorted(excluded.items())),
        pending=excluded["pending"],
        sessions=sum(len(one.sessions) for one in made),
        samples=sum(one.rows for one in files),
        tokens=sum(one.tokens for one in files),
        trainable=sum(one.trainable for one in files),
        packed_rows=len(packed),
    )


def _sessions(made: list[Made]) -> tuple[str, ...]:
    return tuple(sorted({session for one in made for session in one.sessions}))


def _publish(
    lake: Lake,
    manifest: Manifest,
    staged: list[tuple[str, PartFile]],
    of: _Build,
    sessions: tuple[str, ...],
) -> bool:
    """Put the files where the id says, and the shard into the database. Whether it is new."""
    folder = folder_of(manifest.id)
    for (source, part), final in zip(staged, manifest.files, strict=True):
        _put(lake, of, manifest.id, (f"{source}/{part.name}", part), final.name)
        if part.routes and final.routes:
            routes = (f"{source}/{part.routes.name}", part.routes)
            _put(lake, of, manifest.id, routes, final.routes.name)
    name = manifest_name(manifest.id)
    if announce_once(lake.database, manifest.id, name, of.owner) or not _is_there(lake, manifest):
        write_manifest(lake.store, manifest)
    entry = Entry(
        id=manifest.id,
        tenant=of.tenant,
        name=manifest.name,
        snapshot=manifest.snapshot.name if manifest.snapshot else "",
        snap=of.pin.snap,
        samples=manifest.counts.samples,
        tokens=manifest.counts.tokens,
        trainable=manifest.counts.trainable,
        bytes=sum(one.bytes + (one.routes.bytes if one.routes else 0) for one in manifest.files),
        sessions=sessions,
        files=tuple(f"{folder}/{one.name}" for one in manifest.files),
    )
    new = register(lake.database, entry)
    _clear(lake, staged, of.owner)
    return new


def _put(
    lake: Lake, of: _Build, id_: str, staged: tuple[str, PartFile | RoutesFile], name: str
) -> None:
    """A shard that is there already keeps its files, but for those that are damaged or gone."""
    source, part = staged
    to = f"{folder_of(id_)}/{name}"
    if not announce_once(lake.database, id_, to, of.owner):
        with suppress(ShardDamaged):
            check_digest(lake.store, to, part)
            return
    copy_part(lake.store, source, lake.store, to, part)


def _is_there(lake: Lake, manifest: Manifest) -> bool:
    try:
        return read_manifest(lake.store, manifest.id).id == manifest.id
    except (ShardMissing, ShardDamaged):
        return False


def _clear(lake: Lake, staged: list[tuple[str, PartFile]], owner: str) -> None:
    """What was staged goes; what cannot be deleted now, collection deletes later."""
    for folder, part in staged:
        lake.store.delete(f"{folder}/{part.name}")
        if part.routes:
            lake.store.delete(f"{folder}/{part.routes.name}")
    forget(lake.database, owner)


def _key_of(recipe: Recipe, snap: int, tenant: str) -> str:
    facts = [recipe.canonical, recipe.query, str(snap), tenant]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:_SNAPSHOT_HEX]
