"""`penstock shards`: build, list, show, verify, diff, export."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import encode, facts, say, show_json, show_table, time_of
from penstock.terminal.progress import progress_of

if TYPE_CHECKING:
    from penstock.checkpoints.lineage import Learner
    from penstock_jobs.shards.build import ShardBuild


Shard = Annotated[
    str, typer.Argument(metavar="ID", help="The shard's id, the beginning of it, or its name.")
]

app = typer.Typer(help="Training shards, built from queries.", no_args_is_help=True)


@app.command()
def build(
    recipe: Annotated[
        Path, typer.Argument(parser=options.path, metavar="RECIPE.toml", help="The recipe.")
    ],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    left_out: Annotated[
        Path | None,
        typer.Option(
            "--left-out",
            parser=options.path,
            metavar="FILE",
            help="Write which sessions were left out and why, a JSON object a line.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Build a shard by a recipe: files that a trainer reads, and a manifest that proves them.

    The same recipe over the same snapshot makes the same bytes. The work is done where
    PENSTOCK_EXECUTOR says.

    Example: penstock shards build examples/recipes/sft-persistent.toml
    """
    from penstock.execution import open_executor
    from penstock_jobs.shards.build import build_shard
    from penstock_jobs.shards.recipe import load_recipe

    loaded = load_recipe(recipe)
    with (
        open_existing(data) as lake,
        open_executor(lake.settings) as executor,
        progress_of("slices") as follow,
    ):
        built = build_shard(lake, executor, loaded, tenant=tenant, follow=follow)
    if left_out is not None:
        _write_left_out(left_out, built)
    show_json(_facts(built)) if json else _show(built)


def _write_left_out(path: Path, built: "ShardBuild") -> None:
    """Raises InvalidInput where the file cannot be written."""
    lines = (encode(one._asdict()) + b"\n" for one in built.left_out)
    try:
        path.write_bytes(b"".join(lines))
    except OSError as error:
        raise InvalidInput(what=str(path), why=error.strerror or str(error)) from error


def _facts(built: "ShardBuild") -> dict[str, object]:
    import msgspec

    return {
        "shard": built.manifest.id,
        "new": built.new,
        "asked": built.asked,
        "problems": built.problems,
        "branches_left_out": built.branches_left_out,
        "manifest": msgspec.to_builtins(built.manifest),
    }


def _show(built: "ShardBuild") -> None:
    counts = built.manifest.counts
    typer.echo(built.manifest.id)
    if not built.new:
        say("The same shard was there already.")
    such = {one.reason: f"{one.session_id}: {one.detail}" for one in built.left_out if one.detail}
    rows: list[Sequence[object]] = [
        ["sessions asked for", built.asked],
        ["sessions in it", counts.sessions],
        *([f"left out: {why}", count, such.get(why)] for why, count in counts.excluded.items()),
        ["samples", counts.samples],
        *([f"  {status}", count] for status, count in counts.status.items()),
        *([f"branches left out: {reason}", n] for reason, n in built.branches_left_out.items()),
        ["tokens", counts.tokens],
        ["trainable tokens", counts.trainable],
        *([["rows when packed", counts.packed_rows]] if counts.packed_rows else []),
        ["files", len(built.manifest.files)],
        *([f"events with a problem: {kind}", n] for kind, n in sorted(built.problems.items())),
    ]
    if built.manifest.snapshot is not None:
        rows.append(["snapshot", built.manifest.snapshot.name])
    show_table(["what", "value", "such as"], [[*row, None][:3] for row in rows])


@app.command("list")
def list_(
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """The shards that were built; the newest of a name comes last.

    Example: penstock shards list
    """
    from penstock_jobs.shards.registration import list_shards, mark_consent, marks_of

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


@app.command()
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
    from penstock_jobs.shards.registration import find_shard, mark_consent, marks_of

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


@app.command()
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
    from penstock.shards.validation import verify_shard
    from penstock_jobs.shards.registration import find_shard

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


@app.command()
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
    from penstock_jobs.shards.registration import find_shard
    from penstock_jobs.shards.shard_difference import diff_shards

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


@app.command()
def export(
    shard: Shard,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="For what; a wrong name lists them.")
    ],
    out: Annotated[
        Path, typer.Option("--out", parser=options.path, metavar="DIR", help="A new directory.")
    ],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Write a shard in the form of another stack.

    What that form cannot hold is left out, and counted.

    Example: penstock shards export sft-persistent --to trl-sft --out sft
    """
    from penstock.shards.manifest import read_manifest
    from penstock_jobs.shards import export
    from penstock_jobs.shards.registration import find_shard, mark_consent, marks_of

    with open_existing(data) as lake:
        known = find_shard(lake.database, tenant, shard)
        mark_consent(lake)
        marked = len({session for session, _ in marks_of(lake.database, known.id)})
        done = export.export_shard(lake.store, read_manifest(lake.store, known.id), to, out)
    if marked:
        say(f"{marked} sessions in it should be there no more: build it anew before training on it")
    if json:
        show_json(done)
        return
    say(f"{done.rows} rows of {known.id} for {done.written_for}")
    for reason, count in sorted(done.left_out.items()):
        say(f"left out: {reason} {count}")
    for name in done.files:
        typer.echo(str(out / name))
