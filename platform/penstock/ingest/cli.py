"""`penstock ledger` and `penstock rejected`."""

from typing import Annotated

import typer

from penstock.clock import SystemClock
from penstock.errors import InvalidInput
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.options import since_us
from penstock.terminal.output import data_output, facts, say, show_json, show_table, time_of

_COUNTS = ("accepted", "stored", "duplicate", "rejected", "waiting")
#: The largest number that the database has room for.
_ID_MAX = 2**63 - 1


def ledger(
    data: options.Data = None,
    since: Annotated[
        str | None, typer.Option(help="A time, or an age such as 24h or 7d; all by default.")
    ] = None,
    accept_gap: Annotated[
        int | None, typer.Option(help="The number of a gap that somebody has looked into.")
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why the gap is acceptable; it is stored with the gap.")
    ] = "",
    json: options.Json = False,
) -> None:
    """What came in, per source and hour, and what became of it. Exit 1 when it does not add up.

    A gap is what the event log lost before the lake had it. It counts until it is accepted.

    Example: penstock ledger --since 24h
    """
    from penstock.ingest.ledger import read_ledger
    from penstock.lake.commits import accept_gap as enter_acceptance

    with open_existing(data) as lake:
        if accept_gap is not None:
            what = f"--accept-gap {accept_gap}"
            if not reason.strip():
                raise InvalidInput(what=what, why="it needs --reason, which is stored")
            if not enter_acceptance(lake.database, accept_gap, reason):
                raise InvalidInput(what=what, why="there is no such gap")
        report = read_ledger(lake, since_us(since) if since else 0)
    totals = {name: sum(getattr(row, name) for row in report.rows) for name in _COUNTS}
    if json:
        rows, gaps = map(facts, report.rows), map(facts, report.gaps)
        document = {"rows": list(rows), "totals": totals, "gaps": list(gaps)}
        show_json(document | {"discrepancies": report.discrepancies})
    else:
        table: list[list[object]] = []
        for row in report.rows:
            place = [f"{time_of(row.hour):%Y-%m-%d %H}h", row.tenant, row.source or "(none)"]
            table.append([*place, *(getattr(row, name) for name in _COUNTS)])
        table.append(["total", "", "", *totals.values()])
        show_table(["hour (UTC)", "tenant", "source", *_COUNTS], table)
        for gap in report.gaps:
            if gap.accepted_at is not None:
                say(f"gap {gap.id} of partition {gap.partition} was accepted: {gap.accepted_why}")
        for sentence in report.discrepancies:
            say(f"does not add up: {sentence}")
        if not report.discrepancies:
            say("It adds up: accepted = stored + duplicate + waiting in the log.")
    if report.discrepancies:
        raise typer.Exit(1)


rejected_app = typer.Typer(
    help="Rejected lines: why, and sending them again.", no_args_is_help=True
)


@rejected_app.command("list")
def list_(
    data: options.Data = None,
    limit: Annotated[int, typer.Option(help="How many, the newest first.", min=1)] = 100,
    all_: Annotated[
        bool, typer.Option("--all", help="Also those that were sent again meanwhile.")
    ] = False,
    json: options.Json = False,
) -> None:
    """The rejected lines with their reasons.

    Example: penstock rejected list --limit 20
    """
    from penstock.ingest.rejected_lines import list_rejected

    with open_existing(data) as lake:
        entries = list_rejected(lake, limit, replayed=all_)
    if json:
        show_json([facts(entry) for entry in entries])
        return
    rows = []
    for line in entries:
        source, received = line.source or "(none)", time_of(line.received_at)
        rows.append([line.id, received, line.tenant, source, line.line, line.lines, line.reason])
    columns = ["id", "received (UTC)", "tenant", "source", "line", "lines", "reason"]
    show_table(columns, rows)


@rejected_app.command("show")
def show(
    entry_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, max=_ID_MAX, help="From `penstock rejected list`.")
    ],
    data: options.Data = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="The bytes of the line as they came, on a terminal too.")
    ] = False,
    json: options.Json = False,
) -> None:
    """One rejected line, whole. A terminal gets its control characters as numbers, a pipe or a
    file the bytes as they came.

    Example: penstock rejected show 17
    """
    from penstock.ingest.rejected_lines import read_rejected

    with open_existing(data) as lake:
        entry = read_rejected(lake, entry_id)
    if json:
        show_json(facts(entry))
        return
    say(f"{entry.reason} (line {entry.line} of a request of {time_of(entry.received_at)})")
    if entry.lines > 1 and not entry.acknowledged:
        say(f"It is the first of {entry.lines} such lines; the others were only counted.")
    if entry.truncated:
        say("Only the beginning was kept:")
    out = data_output(raw=raw)
    out.write(entry.raw + b"\n")
    out.flush()


@rejected_app.command("replay")
def replay(
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID]…", min=1, max=_ID_MAX, help="All that wait, by default."),
    ] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Check rejected lines again, and take those that are accepted now. Exit 1 when any is not.

    Example: penstock rejected replay 17 18
    """
    from penstock.ingest.rejected_lines import replay_rejected

    with open_existing(data) as lake:
        outcome = replay_rejected(lake, SystemClock(), ids)
    if json:
        show_json(outcome)
    else:
        say(f"{outcome.accepted} accepted now, {len(outcome.refused)} rejected again")
        for entry_id, reason in outcome.refused.items():
            say(f"  {entry_id}: {reason}")
    if outcome.refused:
        raise typer.Exit(1)


@rejected_app.command("fuses")
def fuses(data: options.Data = None, json: options.Json = False) -> None:
    """Sources most of whose lines were rejected: the lines are counted, and the first of each kind
    is stored, until the fuse is released. All other lines are stored as ever.

    Example: penstock rejected fuses
    """
    from penstock.ingest.rejected_lines import list_fuses

    with open_existing(data) as lake:
        tripped = list_fuses(lake.database)
    if json:
        show_json([facts(fuse) for fuse in tripped])
        return
    columns = ["tenant", "source", "tripped (UTC)", "rejected", "of lines", "last reason"]
    rows = [
        [fuse.tenant, fuse.source, time_of(fuse.tripped_at), fuse.rejected, fuse.seen, fuse.reason]
        for fuse in tripped
    ]
    show_table(columns, rows)


@rejected_app.command("release")
def release(
    tenant: Annotated[str, typer.Argument(help="The tenant of the source.")],
    source: Annotated[str, typer.Argument(help="The source; '' is lines that name none.")],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Store each rejected line of a source again, after somebody has looked.

    Example: penstock rejected release acme vscode
    """
    from penstock.ingest.rejected_lines import release_fuse

    with open_existing(data) as lake:
        release_fuse(lake.database, tenant, source)
    if json:
        show_json({"tenant": tenant, "source": source})
        return
    say(f"Rejected lines of {source or '(no source)'} of {tenant} are stored again.")
