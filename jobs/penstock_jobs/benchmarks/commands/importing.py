"""`penstock bench import`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table


def import_(
    path: Annotated[
        Path, typer.Argument(parser=options.path, help="A file of results, or a folder of them.")
    ],
    *,
    suite: Annotated[str, typer.Option("--suite", metavar="NAME", help="Of which suite.")],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="NAME", help="Of which checkpoint.")
    ],
    form: Annotated[
        Literal["auto", "penstock", "inspect", "harbor", "terminal-bench", "swe-bench", "junit"],
        typer.Option("--format", help="What wrote them; auto looks at what is in them."),
    ] = "auto",
    suite_version: Annotated[
        str | None,
        typer.Option(metavar="V", help="Of which version of the suite; else of the newest known."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which score counts, where there are several."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose results, where there are those of several."),
    ] = None,
    first_attempt: Annotated[
        int, typer.Option(metavar="N", help="Number attempts from here on: a further run.", min=0)
    ] = 0,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Also where it has not ended; what is missing: errors."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be taken; change nothing.")
    ] = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Take benchmark results that another harness wrote. A second time adds nothing.

    Errors and missing results stay what they are: neither passes nor failures.

    Example: penstock bench import jobs/2026-11-21 --suite core --checkpoint ckpt-0013
    """
    from penstock_jobs.benchmarks.importing import Wanted, import_results

    wanted = Wanted(
        tenant=tenant,
        suite=suite,
        checkpoint=checkpoint,
        suite_version=suite_version,
        format=None if form == "auto" else form,
        metric=metric,
        only=only,
        first_attempt=first_attempt,
        unfinished=unfinished,
    )
    working = Console(stderr=True).status(f"Reading {path}")  # on a terminal alone
    with open_existing(data) as lake, working:
        done = import_results(lake.database, lake.settings, path, wanted, dry_run=dry_run)
    if json:
        show_json(done)
        return
    mean = None if done.mean_score is None else f"{done.mean_score:.4f}"
    rows: list[tuple[str, object]] = [
        ("format", done.format),
        ("suite", f"{done.suite} {done.suite_version}"),
        ("checkpoint", done.checkpoint),
        ("tasks", done.tasks),
        ("attempts", done.attempts),
        ("scored", done.scored),
        ("errors", done.errors),
        ("mean score", mean),
        ("would be new" if done.dry_run else "new", done.new),
    ]
    show_table(["what", "value"], rows)
    if done.problems:
        reported = [[one.count, one.kind, "; ".join(one.examples)] for one in done.problems]
        show_table(["times", "reported", "such as"], reported)
    if done.errors:
        say(f"{done.errors} attempts say nothing about the model; too many make the verdict ERROR")
