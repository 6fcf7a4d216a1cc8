"""`penstock shards build`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import encode, say, show_json, show_table
from penstock.terminal.progress import progress_of

if TYPE_CHECKING:
    from penstock_jobs.shards.building import Built


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
    from penstock_jobs.shards import building
    from penstock_jobs.shards.recipe import load_recipe

    wanted = load_recipe(recipe)
    with (
        open_existing(data) as lake,
        open_executor(lake.settings) as executor,
        progress_of("slices") as follow,
    ):
        built = building.build(
            lake,
            executor,
            wanted,
            tenant=tenant,
            follow=follow,
        )
    if left_out is not None:
        _write_left_out(left_out, built)
    show_json(_facts(built)) if json else _show(built)


def _write_left_out(path: Path, built: "Built") -> None:
    """Raises InvalidInput where the file cannot be written."""
    lines = (encode(one._asdict()) + b"\n" for one in built.left_out)
    try:
        path.write_bytes(b"".join(lines))
    except OSError as error:
        raise InvalidInput(what=str(path), why=error.strerror or str(error)) from error


def _facts(built: "Built") -> dict[str, object]:
    import msgspec

    return {
        "shard": built.manifest.id,
        "new": built.new,
        "asked": built.asked,
        "problems": built.problems,
        "branches_left_out": built.branches_left_out,
        "manifest": msgspec.to_builtins(built.manifest),
    }


def _show(built: "Built") -> None:
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
