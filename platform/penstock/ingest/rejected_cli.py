"""`penstock rejected`."""

from typing import Annotated

import typer

from penstock.clock import SystemClock
from penstock.ingest.rejected import list_rejected, replay, show_rejected
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table, time_of

#: The largest number that the database has room for.
_ID_MAX = 2**63 - 1

app = typer.Typer(
    help="Lines that were refused: why, and sending them again.", no_args_is_help=True
)


@app.command("list")
def list_(
    data: options.Data = None,
    limit: Annotated[int, typer.Option(help="How many, the newest first.", min=1)] = 100,
    all_: Annotated[
        bool, typer.Option("--all", help="Also those that were sent again meanwhile.")
    ] = False,
    json: options.Json = False,
) -> None:
    """The refused lines with their reasons.

    Example: penstock rejected list --limit 20
    """
    with open_existing(data) as lake:
        entries = list_rejected(lake, limit, replayed=all_)
    if json:
        show_json([facts(entry) for entry in entries])
        return
    columns = ["id", "received (UTC)", "tenant", "source", "line", "reason"]
    show_table(
        columns,
        [
            [e.id, time_of(e.received_at), e.tenant, e.source or "(none)", e.line, e.reason]
            for e in entries
        ],
    )


@app.command("show")
def show(
    entry_id: Annotated[
        int,
        typer.Argument(metavar="ID", min=1, max=_ID_MAX, help="From `penstock rejected list`."),
    ],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """One refused line, whole.

    Example: penstock rejected show 17
    """
    with open_existing(data) as lake:
        entry = show_rejected(lake, entry_id)
    if json:
        show_json(facts(entry))
        return
    say(f"{entry.reason} (line {entry.line} of a request of {time_of(entry.received_at)})")
    if entry.truncated:
        say("Only the beginning was kept:")
    typer.echo(entry.raw.decode(errors="backslashreplace"))


@app.command("replay")
def replay_(
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID]…", min=1, max=_ID_MAX, help="All that wait, by default."),
    ] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Judge refused lines again, and take those that are accepted now. Exit 1 when any is not.

    Example: penstock rejected replay 17 18
    """
    with open_existing(data) as lake:
        outcome = replay(lake, SystemClock(), ids)
    if json:
        show_json(outcome)
    else:
        say(f"{outcome.accepted} accepted now, {len(outcome.refused)} refused again")
        for entry_id, reason in outcome.refused.items():
            say(f"  {entry_id}: {reason}")
    if outcome.refused:
        raise typer.Exit(1)
