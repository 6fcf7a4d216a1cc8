"""`penstock ledger`, `penstock rejected` and `penstock events`."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.options import since_us
from penstock.backends.terminal.output import (
    data_output,
    say,
    say_next_page,
    show_json,
    show_rows,
    show_table,
)
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.ingest.endpoints import (
    ID_MAX,
    LIST_FUSES,
    LIST_REJECTED,
    READ_LEDGER,
    RELEASE_FUSE,
    REPLAY_REJECTED,
    SHOW_REJECTED,
    FusesAnswer,
    LedgerAnswer,
    LedgerRequest,
    RejectedAnswer,
    RejectedLineRequest,
    ReleaseFuseRequest,
    ReplayRequest,
)
from penstock.lake.client import LocalClient
from penstock.lake.commands import Outcome, asks, command


@command(tenant=False)
def ledger(
    client: Client,
    *,
    since: Annotated[
        str | None, typer.Option(help="A time, or an age such as 24h or 7d; all by default.")
    ] = None,
    accept_gap: Annotated[
        int | None, typer.Option(help="The number of a gap that was investigated.")
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why the gap is acceptable; it is stored with the gap.")
    ] = "",
    limit: options.Limit = None,
    cursor: options.Cursor = None,
) -> Iterator[object]:
    """Show what arrived per source and hour, and what became of it. Exit 1 if it does not add up.

    A gap is a part of the event log that was lost before the lake stored it. It counts until it is
    accepted.

    Example: penstock ledger --since 24h
    """
    since_us_ = max(since_us(since), 0) if since else 0
    question = LedgerRequest(since=since_us_, limit=limit, cursor=cursor)
    if accept_gap is not None:
        _accept_gap(client, accept_gap, reason)
    report = client.call(READ_LEDGER, question)
    yield Outcome(report, failed=bool(report.discrepancies))
    _show_ledger(report)


def _show_ledger(report: LedgerAnswer) -> None:
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
    say_next_page(report.next)
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
            f"{dropped} events never arrived: recorders had no room for them while the service "
            "was away. The events of type x_recorder_dropped say of which sessions."
        )
    if not report.discrepancies:
        say("It adds up: accepted = stored + duplicate + erased + waiting in the log.")


def _accept_gap(client: Client, gap: int, reason: str) -> None:
    """Accept a gap. It concerns all tenants, so no single one may do it."""
    from penstock.lake.commits import accept_gap

    what = f"--accept-gap {gap}"
    if not isinstance(client, LocalClient):
        raise InvalidInput(what=what, why="it is of all tenants; use it on the lake's machine")
    if not reason.strip():
        raise InvalidInput(what=what, why="it needs --reason, which is stored")
    if not accept_gap(client.lake.database, gap, reason):
        raise InvalidInput(what=what, why="it does not exist")


rejected_app = typer.Typer(
    help="Rejected lines: their reasons, and replaying them.", no_args_is_help=True
)


@rejected_app.command("list")
@asks(LIST_REJECTED, tenant=False)
def list_(page: RejectedAnswer) -> None:
    """List rejected lines with their reasons.

    Example: penstock rejected list --limit 20
    """
    rows = [msgspec.structs.replace(line, source=line.source or "(none)") for line in page.lines]
    show_rows(rows, "id", "received_at", "tenant", "source", "line", "lines", "reason")


@rejected_app.command()
@command(tenant=False)
def show(
    client: Client,
    entry_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="From `penstock rejected list`.")
    ],
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the original bytes, even on a terminal.")
    ] = False,
) -> Iterator[object]:
    """Show a whole rejected line. On a terminal control characters are shown as numbers; pipes and
    files get the original bytes.

    Example: penstock rejected show 17
    """
    answer = client.call(SHOW_REJECTED, RejectedLineRequest(id=entry_id))
    entry = answer.entry
    yield entry
    received = datetime.fromisoformat(entry.received_at)
    say(f"{entry.reason} (line {entry.line} of a request of {received})")
    if entry.lines > 1 and not entry.acknowledged:
        say(f"It is the first of {entry.lines} such lines; the others were only counted.")
    if entry.truncated:
        say("Only the beginning was kept:")
    out = data_output(raw=raw)
    out.write(answer.content + b"\n")
    out.flush()


@rejected_app.command()
@command(tenant=False)
def replay(
    client: Client,
    ids: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[ID]…", min=1, max=ID_MAX, help="The lines to replay; by default all."
        ),
    ] = None,
) -> Iterator[object]:
    """Check rejected lines again, and accept those that are valid now. Exit 1 if any is not.

    Example: penstock rejected replay 17 18
    """
    outcome = client.call(REPLAY_REJECTED, ReplayRequest(ids=ids or []))
    yield Outcome(outcome, failed=bool(outcome.refused))
    say(f"{outcome.accepted} accepted now, {len(outcome.refused)} rejected again")
    for entry_id, reason in outcome.refused.items():
        say(f"  {entry_id}: {reason}")


@rejected_app.command()
@asks(LIST_FUSES, tenant=False)
def fuses(page: FusesAnswer) -> None:
    """List sources with mostly rejected lines. Until its fuse is released, only the first line of
    each kind is stored and the others are counted. Valid lines are stored as usual.

    Example: penstock rejected fuses
    """
    titles = {"seen": "of lines", "reason": "last reason"}
    show_rows(page.fuses, "tenant", "source", "tripped_at", "rejected", **titles)


@rejected_app.command()
@command(tenant=False)
def release(
    client: Client,
    owner: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant of the source.")],
    source: Annotated[str, typer.Argument(help="The source; '' for lines without one.")],
) -> Iterator[object]:
    """Store each rejected line of a source again, after its cause was examined.

    Example: penstock rejected release acme vscode
    """
    yield client.call(RELEASE_FUSE, ReleaseFuseRequest(tenant=owner, source=source))
    say(f"Rejected lines of {source or '(no source)'} of {owner} are stored again.")


events_app = typer.Typer(help="The format of events.", no_args_is_help=True)


@events_app.callback()
def _about_events() -> None:
    """Keeps `schema` a subcommand, though it is the only one."""


@events_app.command()
@command()
def schema(
    kind: Annotated[
        str, typer.Argument(metavar="[TYPE]", help="Only this type of event, such as edit.")
    ] = "",
) -> Iterator[object]:
    """Print the JSON Schema of accepted events, with its version in $id.

    Example: penstock events schema model_call
    """
    from penstock.events.event import event_schema

    document = event_schema(kind or None)
    yield document
    show_json(document)
