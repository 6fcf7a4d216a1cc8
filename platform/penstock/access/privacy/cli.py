"""`penstock erase`."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import facts, say, show_table, time_of
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake


@command()
def erase(
    lake: Lake,
    *,
    user: Annotated[str | None, typer.Option(metavar="U", help="All sessions of a user.")] = None,
    session: Annotated[str | None, typer.Option(metavar="S", help="One session.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="P", help="All sessions of a project.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="T", help="Whose events; alone, all that the tenant sent.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; stands in the report.")] = "",
    by: options.By = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="End what was cut off.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="The reports of all erasures.")] = False,
    verify: Annotated[
        str | None, typer.Option(metavar="FILE", help="Whether a report is as it was written.")
    ] = None,
) -> Iterator[object]:
    """Erase a user, session, project or tenant, with all that was made of it.

    Nothing of it comes back: not by an import, a retry or a replay. Events that come while it runs
    are stored as ever. It may be cut off and taken up again. It ends with a signed report.

    Example: penstock erase --user u-77 --reason "asked for on 12 May"
    """
    from penstock.access.privacy.erasure import carry_out, count_reach, open_erasures, order_erasure

    if list_:
        yield from _tell_all(lake)
    elif verify is not None:
        yield from _verify(lake, verify)
    elif resume:
        reports = [carry_out(lake, id_, say) for id_ in open_erasures(lake)]
        yield reports
        for report in reports:
            _show(report)
        if not reports:
            say("No erasure was cut off.")
    else:
        scope = _scope(lake, user=user, session=session, project=project, tenant=tenant)
        reached = count_reach(lake, scope)
        what = f"{scope.kind} {scope.value}"
        if dry_run:
            yield {"kind": scope.kind, "tenant": scope.tenant, "sessions": reached}
            say(f"{what}: {reached} sessions would be erased")
            return
        if not yes and not typer.confirm(f"Erase {what}: {reached} sessions, for ever?", err=True):
            raise typer.Exit(1)
        id_ = order_erasure(lake, scope, reason=reason, by=options.actor(by))
        report = carry_out(lake, id_, say)
        yield report
        _show(report)


def _scope(lake: Lake, **given: str | None) -> Any:
    from penstock.access.privacy.orders import ErasureScope
    from penstock.backends.database.engine import clock_us

    tenant = given.pop("tenant")
    named = [(kind, value) for kind, value in given.items() if value is not None]
    if len(named) > 1 or not (named or tenant):
        why = "it erases one of --user, --session, --project, or all of a --tenant"
        raise InvalidInput(what="penstock erase", why=why)
    kind, value = named[0] if named else ("tenant", str(tenant))
    if not value:
        raise InvalidInput(what=f"--{kind}", why="it is empty")
    with lake.database.read() as connection:
        now_us = clock_us(connection)
    return ErasureScope(tenant or TENANT_DEFAULT, kind, value, now_us)


def _show(report: dict[str, Any]) -> None:
    rows: list[list[object]] = [["sessions", report["sessions"]]]
    rows += [[what, count] for what, count in report["removed"].items()]
    show_table(["erased", "count"], rows)
    for what, names in report["seen_by"].items():
        say(f"{what} that had seen it: {', '.join(names)}")
    for note in report["notes"]:
        say(note)
    say(f"erasure {report['erasure']}; its signed report: penstock erase --list --json")


def _tell_all(lake: Lake) -> Iterator[object]:
    from penstock.access.privacy.erasure import list_erasures

    erasures = list_erasures(lake)
    yield [each.report for each in erasures if each.report is not None]
    rows: list[list[object]] = []
    for each in erasures:
        ended = None if each.finished_at is None else time_of(each.finished_at)
        sessions = None if each.report is None else each.report["sessions"]
        times = [time_of(each.started_at), ended]
        rows.append([each.id, each.kind, each.state, sessions, *times, each.requested_by])
    columns = ["id", "kind", "state", "sessions", "started (UTC)", "ended (UTC)", "by"]
    show_table(columns, rows)


def _verify(lake: Lake, name: str) -> Iterator[object]:
    """Raises InvalidInput. Exit 1 where it is not genuine."""
    from pathlib import Path

    from penstock.core.lake_keys import SigningKey, signed_document

    try:
        report = signed_document(Path(name).read_bytes(), name)
    except OSError as error:
        raise InvalidInput(what=name, why=error.strerror or str(error)) from error
    genuine = SigningKey.of(lake.settings).public.has_signed(report)
    yield Outcome({"genuine": genuine}, failed=not genuine)
    text = "is as this lake wrote it" if genuine else "is not what this lake wrote"
    say(f"The report {text}.")


retention_app = typer.Typer(help="How long what is kept.", no_args_is_help=True)

_FOR_EVER = "never"
Tenant = Annotated[
    str, typer.Option(help="Whose; without it, of all that have no rule of their own.")
]


@retention_app.command("set")
@command()
def set_(
    lake: Lake,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What; a wrong one lists them.")],
    age: Annotated[str, typer.Argument(metavar="AGE", help="90d; `never` keeps it for ever.")],
    tenant: Tenant = "",
    *,
    break_snapshots: Annotated[
        bool, typer.Option("--break-snapshots", help="Also what snapshots see.")
    ] = False,
    by: options.By = None,
) -> Iterator[object]:
    """Say how long a kind of data is kept. The service lets go of what is older once a day.

    A session goes as a whole, when its last event is older. By default what a snapshot sees stays
    until the snapshot is dropped.

    Example: penstock retention set events 90d
    """
    from penstock.access.privacy.retention import set_rule

    age_s = None if age == _FOR_EVER else options.age_seconds("The age", age)
    who = options.actor(by)
    set_rule(lake, kind, age_s, tenant=tenant, breaks_snapshots=break_snapshots, by=who)
    yield {"kind": kind, "tenant": tenant, "age_s": age_s}
    whose = f"of {tenant}" if tenant else "of all tenants without a rule of their own"
    say(f"{kind} {whose}: kept {'for ever' if age_s is None else age}")


@retention_app.command("list")
@command()
def list_(lake: Lake) -> Iterator[object]:
    """All rules.

    Example: penstock retention list
    """
    from penstock.access.privacy.retention import DAY_SECONDS, list_rules

    rules = list_rules(lake)
    yield [facts(rule) for rule in rules]
    rows: list[list[object]] = []
    for rule in rules:
        kept = "for ever" if rule.age_s is None else f"{rule.age_s / DAY_SECONDS:g} days"
        breaks = "yes" if rule.breaks_snapshots else "no"
        rows.append([rule.tenant or "(all others)", rule.kind, kept, breaks, rule.set_by])
    show_table(["tenant", "kind", "kept", "breaks snapshots", "set by"], rows)


@retention_app.command()
@command()
def run(
    lake: Lake,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")] = False,
    by: options.By = None,
) -> Iterator[object]:
    """Let go of what is too old by the rules, now.

    Example: penstock retention run --dry-run
    """
    from contextlib import nullcontext

    from penstock.access.privacy.retention import run_rules
    from penstock.lake.upkeep.rounds import upkeep_by_hand

    with nullcontext() if dry_run else upkeep_by_hand(lake):
        outcomes = list(run_rules(lake, dry=dry_run, by=options.actor(by)))
    yield outcomes
    names = ("sessions", "rows", "bytes")
    rows = [[each.tenant, each.kind, *(getattr(each.count, n) for n in names)] for each in outcomes]
    show_table(["tenant", "kind", *names], rows)
    for outcome in outcomes:
        for name, size in outcome.count.held.items():
            say(f"the snapshot {name} keeps {size} bytes of {outcome.kind} that old")
