"""`penstock consent`: what users, projects and sessions allow."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT, Consent
from penstock.lake.desk import open_desk
from penstock.terminal import options
from penstock.terminal.output import say, say_more, show_json, show_table

if TYPE_CHECKING:
    from penstock.privacy.consents import DecisionKind
    from penstock_jobs.shards.consent_calls import WithdrawalAnswer

app = typer.Typer(
    help="Whether what users, projects and sessions send may be trained on.", no_args_is_help=True
)


@app.command("set")
def set_(
    consent: Annotated[Consent, typer.Argument(help="`unknown` takes the decision before back.")],
    *,
    user: Annotated[str | None, typer.Option(metavar="U", help="All sessions of a user.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="P", help="All sessions of a project.")
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="S", help="One session.")] = None,
    reason: Annotated[str, typer.Option(help="Why; stands in the list.")] = "",
    by: options.By = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Decide whether something may be trained on. It holds from now on, for what was stored before
    too: `no_train` marks the shards that hold it, and names the checkpoints that learned from them.

    One `no_train`, of the session, its user or its project, is enough: no `train` outweighs it.

    Example: penstock consent set no_train --user u-77 --reason "asked for on 12 May"
    """
    from penstock_jobs.shards.consent_calls import DECIDE_CONSENT, DecideQuestion

    given: dict[DecisionKind, str | None] = {"user": user, "project": project, "session": session}
    named = [(kind, value) for kind, value in given.items() if value is not None]
    if len(named) != 1 or not named[0][1]:
        why = "it is about one of --user, --project, --session"
        raise InvalidInput(what="penstock consent set", why=why)
    kind, subject = named[0]
    question = DecideQuestion(kind=kind, subject=subject, consent=consent, reason=reason)
    with open_desk(data, url, tenant, by=by) as desk:
        answer = desk.ask(DECIDE_CONSENT, question)
    if json:
        show_json(answer)
        return
    say(f"{kind} {subject}: {consent} from now on")
    if consent == "no_train":
        _show_withdrawal(answer)


def _show_withdrawal(answer: "WithdrawalAnswer") -> None:
    say(f"{answer.sessions} stored sessions name it; {len(answer.shards)} shards are marked")
    if not answer.shards:
        return
    rows: list[list[object]] = [
        [each.name, each.shard, each.sessions, ", ".join(each.checkpoints)]
        for each in answer.shards
    ]
    show_table(["name", "shard", "withdrawn sessions", "checkpoints that learned it"], rows)


@app.command("list")
def list_(
    *,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """All decisions, also those that others took the place of; the newest comes last.

    Example: penstock consent list
    """
    from penstock_jobs.shards.consent_calls import LIST_DECISIONS, DecisionsQuestion

    with open_desk(data, url, tenant) as desk:
        page = desk.ask(LIST_DECISIONS, DecisionsQuestion(limit=limit, cursor=cursor))
    say_more(page.next)
    if json:
        show_json(page.decisions)
        return
    rows: list[list[object]] = []
    for each in page.decisions:
        decided = datetime.fromisoformat(each.decided_at)
        holds = "yes" if each.holds else "no"
        rows.append(
            [each.kind, each.subject, each.consent, holds, decided, each.decided_by, each.reason]
        )
    show_table(["kind", "subject", "consent", "holds", "decided (UTC)", "by", "reason"], rows)
