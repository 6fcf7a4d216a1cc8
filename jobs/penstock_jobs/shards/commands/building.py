"""`penstock shards build`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options
from penstock.cli.opening import open_existing
from penstock.cli.output import say, show_json, show_table
from penstock.events.tenants import TENANT_DEFAULT

if TYPE_CHECKING:
    from penstock_jobs.shards.building import Built


def build(
    recipe: Annotated[
        Path, typer.Argument(parser=options.path, metavar="RECIPE.toml", help="The recipe.")
    ],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Build a shard by a recipe: files that a trainer reads, and a manifest that proves them.

    The same recipe over the same snapshot makes the same bytes. The work is done where
    PENSTOCK_EXECUTOR says.

    Example: penstock shards build examples/recipes/sft-persistent.toml
    """
    from rich.console import Console
    from rich.progress import Progress

    from penstock.execution.opening import open_executor
    from penstock_jobs.shards import building
    from penstock_jobs.shards.recipe import load_recipe

    wanted = load_recipe(recipe)
    console = Console(stderr=True)
    with (
        open_existing(data) as lake,
        open_executor(lake.settings) as executor,
        Progress(console=console, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task("slices")
        built = building.build(
            lake,
            executor,
            wanted,
            tenant=tenant,
            follow=lambda done, of: progress.update(bar, completed=done, total=of),
        )
    show_json(_facts(built)) if json else _show(built)


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
    rows = [["sessions asked for", built.asked], ["sessions in it", counts.sessions]]
    rows += [[f"left out: {reason}", count] for reason, count in counts.excluded.items()]
    rows += [
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
    show_table(["what", "value"], rows)
