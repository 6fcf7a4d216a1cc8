"""`penstock shards list | show | verify | diff`."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table, time_of

if TYPE_CHECKING:
    from penstock.checkpoints.lineage import Learner

Shard = Annotated[
    str, typer.Argument(metavar="ID", help="The shard's id, the beginning of it, or its name.")
]


def list_(
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """The shards that were built; the newest of a name comes last.

    Example: penstock shards list
    """
    from penstock_jobs.shards.registering import list_shards, mark_consent, marks_of

    with open_existing(data) as lake:
        mark_consent(lake)
        rows = [
            facts(one) | {"marked_sessions": len(marks_of(lake.database, one.id))}
            for one in list_shards(lake.database, tenant)
        ]
    if json:
        show_json(rows)
        return
    columns = ["id", "name", "samples", "tokens", "trainable", "bytes", "marked_sessions"]
    shown = [[row[name] for name in columns] + [row["created_at"]] for row in rows]
    show_table([*columns, "created_at"], shown)


def show(
    shard: Shard,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """A shard's manifest, what marks it, and which checkpoints were trained on it.

    Example: penstock shards show sft-persistent
    """
    import msgspec

    from penstock.checkpoints.lineage import learners
    from penstock.shards.manifest import read_manifest
    from penstock_jobs.shards.registering import find_shard, mark_consent, marks_of

    with open_existing(data) as lake:
        mark_consent(lake)
        known = find_shard(lake.database, tenant, shard)
        manifest = read_manifest(lake.store, known.id)
        marks = marks_of(lake.database, known.id)
        trained = learners(lake.database, tenant, known.id)
    told = msgspec.to_builtins(manifest)
    held = [{"session_id": session, "reason": reason} for session, reason in marks]
    if json:
        show_json({"shard": known.id, "marks": held, "trained": trained, "manifest": told})
        return
    rows: list[list[object]] = [["shard", known.id], ["built at", time_of(known.created_at)]]
    rows += [[name, value] for name, value in told.items() if name not in ("files", "query")]
    rows += [["marked", f"{one['session_id']}: {one['reason']}"] for one in held]
    rows += [["trained", _learner(one)] for one in trained]
    show_table(["what", "value"], rows)
    columns = ["name", "rows", "tokens", "trainable", "bytes", "sha256"]
    show_table(columns, [[one[name] for name in columns] for one in told["files"]])
    typer.echo(manifest.query.strip())


def _learner(one: "Learner") -> str:
    through = f", from {one.through}" if one.through else ""
    return f"{one.checkpoint} ({one.state}{through})"


def verify(
    shard: Shard,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Prove a shard from its files. Exit 1 when anything does not match.

    Example: penstock shards verify sft-persistent
    """
    from penstock.shards.manifest import read_manifest
    from penstock_jobs.shards.registering import find_shard
    from penstock_jobs.shards.verifying import verify_shard

    with open_existing(data) as lake:
        known = find_shard(lake.database, tenant, shard)
        proof = verify_shard(lake.store, read_manifest(lake.store, known.id))
    if json:
        show_json(proof)
    else:
        for problem in proof.problems:
            say(problem)
        held = f"{proof.files} files, {proof.samples} samples, {proof.tokens} tokens"
        say(f"{known.id}: {held}: {len(proof.problems)} problems")
    if proof.problems:
        raise typer.Exit(1)


def diff(
    before: Shard,
    after: Shard,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What changed from one shard to another, and why.

    Example: penstock shards diff 96380bb6 dbf6e012
    """
    from penstock.shards.manifest import read_manifest
    from penstock_jobs.shards.diffing import diff_shards
    from penstock_jobs.shards.registering import find_shard

    with open_existing(data) as lake:
        one, other = (find_shard(lake.database, tenant, text) for text in (before, after))
        manifests = (read_manifest(lake.store, found.id) for found in (one, other))
        found = diff_shards(lake.store, *manifests)
    if json:
        show_json(found)
        return
    rows = [[change.what, change.before, change.after] for change in found.changes]
    show_table(
        ["what", "before", "after"], [[one, str(two), str(three)] for one, two, three in rows]
    )
    for line in found.query:
        say(line)
    samples = found.samples
    say(
        f"samples: {samples.same} in both, {samples.otherwise} with another reward or weight,"
        f" {samples.only_before} only before, {samples.only_after} only after"
    )
    for sessions, side in (
        (samples.sessions_only_before, "before"),
        (samples.sessions_only_after, "after"),
    ):
        if sessions:
            say(f"sessions only {side}: {', '.join(sessions)}")
