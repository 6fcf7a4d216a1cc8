"""`penstock ledger`, `penstock rejected` and `penstock events`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.errors import InvalidInput
from penstock.lake.desk import Desk, LocalDesk, open_desk
from penstock.terminal import options
from penstock.terminal.options import since_us
from penstock.terminal.output import data_output, say, say_more, show_json, show_table

if TYPE_CHECKING:  # the calls are loaded when a command runs
    from penstock.ingest.calls import LedgerAnswer

#: The largest number that the database has room for.
_ID_MAX = 2**63 - 1


def ledger(
    data: options.DeskData = None,
    url: options.Url = None,
    *,
    since: Annotated[
        str | None, typer.Option(help="A time, or an age such as 24h or 7d; all by default.")
    ] = None,
    accept_gap: Annotated[
        int | None, typer.Option(help="The number of a gap that somebody has looked into.")
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why the gap is acceptable; it is stored with the gap.")
    ] = "",
    limit: options.Limit = None,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """What came in, per source and hour, and what became of it. Exit 1 when it does not add up.

    A gap is what the event log lost before the lake had it. It counts until it is accepted.

    Example: penstock ledger --since 24h
    """
    from penstock.ingest.calls import READ_LEDGER, LedgerQuestion

    since_us_ = max(since_us(since), 0) if since else 0
    question = LedgerQuestion(since=since_us_, limit=limit, cursor=cursor)
    with open_desk(data, url) as desk:
        if accept_gap is not None:
            _accept_gap(desk, accept_gap, reason)
        report = desk.ask(READ_LEDGER, question)
    show_json(report) if json else _show_ledger(report)
    if report.discrepancies:
        raise typer.Exit(1)


def _show_ledger(report: "LedgerAnswer") -> None:
    totals = msgspec.structs.asdict(report.totals)
    table: list[list[object]] = []
    if not totals["dropped"]:
        del totals["dropped"]
    for row in report.rows:
        hour = datetime.fromisoformat(row.hour)
        place = [f"{hour:%Y-%m-%d %H}h", row.tenant, row.source or "(none)"]
        table.append([*place, *(getattr(row, name) for name in totals)])
    table.append(["total", "", "", *totals.values()])
    columns = list(totals)
    show_table(["hour (UTC)", "tenant", "source", *columns], table)
    say_more(report.next)
    for gap in report.gaps:
        if gap.accepted_at is not None:
            say(f"gap {gap.id} of partition {gap.partition} was accepted: {gap.accepted_why}")
    for sentence in report.discrepancies:
        say(f"does not add up: {sentence}")
    if report.waiting is not None:
        oldest = datetime.fromisoformat(report.waiting.since_at)
        waiting = f"{report.waiting.events} events wait in the log"
        say(f"{waiting} since {oldest:%Y-%m-%d %H:%M:%S} UTC: {report.waiting.why}.")
    if dropped := report.totals.dropped:
        say(
            f"{dropped} events never came here: recorders had no room for them while the service "
            "was away. The events of type x_recorder_dropped say of which sessions."
        )
    if not report.discrepancies:
        say("It adds up: accepted = stored + duplicate + erased + waiting in the log.")


def _accept_gap(desk: Desk, gap: int, reason: str) -> None:
    """Of all tenants, so that none of them does it."""
    from penstock.lake.commits import accept_gap

    what = f"--accept-gap {gap}"
    if not isinstance(desk, LocalDesk):
        raise InvalidInput(what=what, why="it is of all tenants; use it on the lake's machine")
    if not reason.strip():
        raise InvalidInput(what=what, why="it needs --reason, which is stored")
    if not accept_gap(desk.lake.database, gap, reason):
        raise InvalidInput(what=what, why="there is no such gap")


rejected_app = typer.Typer(
    help="Rejected lines: why, and sending them again.", no_args_is_help=True
)


@rejected_app.command("list")
def list_(
    *,
    data: options.DeskData = None,
    url: options.Url = None,
    limit: Annotated[
        int, typer.Option(help="How many, the newest first.", min=1, max=10_000)
    ] = 100,
    cursor: options.Cursor = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Also those that were sent again meanwhile.")
    ] = False,
    json: options.Json = False,
) -> None:
    """The rejected lines with their reasons.

    Example: penstock rejected list --limit 20
    """
    from penstock.ingest.calls import LIST_REJECTED, RejectedQuestion

    with open_desk(data, url) as desk:
        question = RejectedQuestion(limit=limit, cursor=cursor, replayed=all_)
        page = desk.ask(LIST_REJECTED, question)
    say_more(page.next)
    if json:
        show_json(page.lines)
        return
    rows: list[list[object]] = []
    for line in page.lines:
        source, received = line.source or "(none)", datetime.fromisoformat(line.received_at)
        rows.append([line.id, received, line.tenant, source, line.line, line.lines, line.reason])
    columns = ["id", "received (UTC)", "tenant", "source", "line", "lines", "reason"]
    show_table(columns, rows)


@rejected_app.command("show")
def show(
    entry_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, max=_ID_MAX, help="From `penstock rejected list`.")
    ],
    data: options.DeskData = None,
    url: options.Url = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="The bytes of the line as they came, on a terminal too.")
    ] = False,
    json: options.Json = False,
) -> None:
    """One rejected line, whole. A terminal gets its control characters as numbers, a pipe or a
    file the bytes as they came.

    Example: penstock rejected show 17
    """
    from penstock.ingest.calls import SHOW_REJECTED, RejectedLineQuestion

    with open_desk(data, url) as desk:
        answer = desk.ask(SHOW_REJECTED, RejectedLineQuestion(id=entry_id))
    entry = answer.entry
    if json:
        show_json(entry)
        return
    received = datetime.fromisoformat(entry.received_at)
    say(f"{entry.reason} (line {entry.line} of a request of {received})")
    if entry.lines > 1 and not entry.acknowledged:
        say(f"It is the first of {entry.lines} such lines; the others were only counted.")
    if entry.truncated:
        say("Only the beginning was kept:")
    out = data_output(raw=raw)
    out.write(answer.content + b"\n")
    out.flush()


@rejected_app.command("replay")
def replay(
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID]…", min=1, max=_ID_MAX, help="All that wait, by default."),
    ] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    json: options.Json = False,
) -> None:
    """Check rejected lines again, and take those that are accepted now. Exit 1 when any is not.

    Example: penstock rejected replay 17 18
    """
    from penstock.ingest.calls import REPLAY_REJECTED, ReplayQuestion

    with open_desk(data, url) as desk:
        outcome = desk.ask(REPLAY_REJECTED, ReplayQuestion(ids=ids or []))
    if json:
        show_json(outcome)
    else:
        say(f"{outcome.accepted} accepted now, {len(outcome.refused)} rejected again")
        for entry_id, reason in outcome.refused.items():
            say(f"  {entry_id}: {reason}")
    if outcome.refused:
        raise typer.Exit(1)


@rejected_app.command("fuses")
def fuses(
    *,
    data: options.DeskData = None,
    url: options.Url = None,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """Sources most of whose lines were rejected: the lines are counted, and the first of each kind
    is stored, until the fuse is released. All other lines are stored as ever.

    Example: penstock rejected fuses
    """
    from penstock.ingest.calls import LIST_FUSES, FusesQuestion

    with open_desk(data, url) as desk:
        page = desk.ask(LIST_FUSES, FusesQuestion(limit=limit, cursor=cursor))
    say_more(page.next)
    if json:
        show_json(page.fuses)
        return
    columns = ["tenant", "source", "tripped (UTC)", "rejected", "of lines", "last reason"]
    rows: list[list[object]] = []
    for fuse in page.fuses:
        at = datetime.fromisoformat(fuse.tripped_at)
        rows.append([fuse.tenant, fuse.source, at, fuse.rejected, fuse.seen, fuse.reason])
    show_table(columns, rows)


@rejected_app.command("release")
def release(
    tenant: Annotated[str, typer.Argument(help="The tenant of the source.")],
    source: Annotated[str, typer.Argument(help="The source; '' is lines that name none.")],
    data: options.DeskData = None,
    url: options.Url = None,
    json: options.Json = False,
) -> None:
    """Store each rejected line of a source again, after somebody has looked.

    Example: penstock rejected release acme vscode
    """
    from penstock.ingest.calls import RELEASE_FUSE, ReleaseFuseQuestion

    with open_desk(data, url) as desk:
        desk.ask(RELEASE_FUSE, ReleaseFuseQuestion(tenant=tenant, source=source))
    if json:
        show_json({"tenant": tenant, "source": source})
        return
    say(f"Rejected lines of {source or '(no source)'} of {tenant} are stored again.")


events_app = typer.Typer(help="What an event is.", no_args_is_help=True)


@events_app.callback()
def _about_events() -> None:
    """One command stands below the name still."""


@events_app.command("schema")
def schema(
    kind: Annotated[
        str, typer.Argument(metavar="[TYPE]", help="Of this type alone, such as edit.")
    ] = "",
    json: options.Json = False,
) -> None:
    """The JSON Schema of events, with its version in $id. It says what is accepted.

    Example: penstock events schema model_call
    """
    from penstock.events.event import event_schema

    show_json(event_schema(kind or None))
