"""`penstock audit`."""

from datetime import datetime
from typing import Annotated

import typer

from penstock.audit.entry import Action
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import open_desk
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table

app = typer.Typer(help="Who did what, and whether anybody changed that.", no_args_is_help=True)


@app.command("list")
def list_(
    action: Annotated[Action | None, typer.Option(help="Only what was done so.")] = None,
    actor: Annotated[
        str | None, typer.Option(help='Only by this key or user, such as "key 1f0c2a9b".')
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help='Only to this, such as "channel production".')
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only to this session: entries have digests.")
    ] = None,
    *,
    limit: Annotated[int, typer.Option(help="So many, the newest first.", min=1, max=1000)] = 100,
    cursor: Annotated[str | None, typer.Option(help="The `next` of a page before.")] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What was done, the newest first, tenant by tenant.

    Example: penstock audit list --action promote
    """
    from penstock.access.audit_calls import LIST_ENTRIES, EntriesQuestion
    from penstock.audit.entry import person_digest

    if session is not None:
        subject = person_digest(tenant, "session", session)
    wanted = EntriesQuestion(
        action=action, actor=actor, subject=subject, limit=limit, cursor=cursor
    )
    with open_desk(data, url, tenant) as desk:
        answer = desk.ask(LIST_ENTRIES, wanted)
    if json:
        show_json(answer)
        return
    names = ["number", "at", "tenant", "actor", "action", "subject", "facts"]
    rows: list[list[object]] = []
    for entry in answer.entries:
        row: list[object] = [getattr(entry, name) for name in names]
        rows.append([row[0], datetime.fromisoformat(entry.at), *row[2:]])
    show_table(["number", "at (UTC)", *names[2:]], rows)
    if answer.next is not None:
        say(f"More: --cursor {answer.next!r}")


@app.command("verify")
def verify(
    head: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="A head that you noted: it has to be in there."),
    ] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Whether any entry was changed, removed, put in or moved; exit status 1 if so.

    Whoever can write into the database can also make a whole chain anew. Keep the head that is
    shown somewhere else, and name it with --head the next time; the service logs it every minute.

    Example: penstock audit verify
    """
    from penstock.access.audit_calls import VERIFY_AUDIT, VerifyQuestion

    with open_desk(data, url, tenant) as desk:
        chains = desk.ask(VERIFY_AUDIT, VerifyQuestion(head=head)).chains
    flawed = [chain for chain in chains if chain.flaw is not None]
    if json:
        show_json(chains)
    else:
        for chain in chains:
            name = chain.tenant or "(the service)"
            if chain.flaw is None:
                say(f"{name}: {chain.number} entries as written; head {chain.number}:{chain.hash}")
            else:
                say(f"{name}: entry {chain.flaw} is not as it was written: {chain.why}")
    if flawed:
        raise typer.Exit(1)
