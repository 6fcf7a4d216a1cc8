"""`penstock ledger`."""

from typing import Annotated

import typer

from penstock.errors import InvalidInput
from penstock.ingest.ledger import LedgerReport, read_ledger
from penstock.lake.lake import Lake, open_existing
from penstock.lake.partitions import accept_gap as enter_acceptance
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table, time_of
from penstock.terminal.times import since_us

_NUMBERS = ("accepted", "stored", "duplicate", "rejected", "waiting")


def ledger(
    data: options.Data = None,
    since: Annotated[
        str | None, typer.Option(help="A time, or an age such as 24h or 7d; all by default.")
    ] = None,
    accept_gap: Annotated[
        int | None, typer.Option(help="The number of a gap that somebody has looked into.")
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why the gap can be lived with; it is kept with the gap.")
    ] = "",
    json: options.Json = False,
) -> None:
    """What came in, per source and hour, and what became of it. Exit 1 when it does not add up.

    A gap is what the event log lost before the lake had it. It counts until it is accepted.

    Example: penstock ledger --since 24h
    """
    with open_existing(data) as lake:
        if accept_gap is not None:
            _accept(lake, accept_gap, reason)
        report = read_ledger(lake, since_us(since) if since else 0)
    if json:
        rows = [facts(row) for row in report.rows]
        gaps = [facts(gap) for gap in report.gaps]
        found = {"rows": rows, "totals": _totals(report), "gaps": gaps}
        show_json(found | {"discrepancies": report.discrepancies})
    else:
        show_report(report)
    if report.discrepancies:
        raise typer.Exit(1)


def _accept(lake: Lake, gap: int, reason: str) -> None:
    if not reason.strip():
        raise InvalidInput(what=f"--accept-gap {gap}", why="it needs --reason, which is kept")
    if not enter_acceptance(lake.database, gap, reason):
        raise InvalidInput(what=f"--accept-gap {gap}", why="there is no such gap")


def show_report(report: LedgerReport) -> None:
    columns = ["hour (UTC)", "tenant", "source", *_NUMBERS]
    rows: list[list[object]] = [
        [f"{time_of(row.hour):%Y-%m-%d %H}h", row.tenant, row.source or "(none)"]
        + [getattr(row, name) for name in _NUMBERS]
        for row in report.rows
    ]
    totals = _totals(report)
    show_table(columns, [*rows, ["total", "", "", *totals.values()]])
    for gap in report.gaps:
        if gap.accepted_at is not None:
            say(f"gap {gap.id} of partition {gap.partition} was accepted: {gap.accepted_why}")
    for sentence in report.discrepancies:
        say(f"does not add up: {sentence}")
    if not report.discrepancies:
        say("It adds up: accepted = stored + duplicate + waiting in the log.")


def _totals(report: LedgerReport) -> dict[str, int]:
    return {name: sum(getattr(row, name) for row in report.rows) for name in _NUMBERS}
