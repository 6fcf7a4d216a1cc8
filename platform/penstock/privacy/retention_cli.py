"""`penstock retention`."""

from typing import Annotated

import typer

from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table

app = typer.Typer(help="How long what is kept.", no_args_is_help=True)

_FOR_EVER = "never"
Tenant = Annotated[
    str, typer.Option(help="Whose; without it, of all that have no rule of their own.")
]


@app.command("set")
def set_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What; a wrong one lists them.")],
    age: Annotated[str, typer.Argument(metavar="AGE", help="90d; `never` keeps it for ever.")],
    data: options.Data = None,
    tenant: Tenant = "",
    *,
    break_snapshots: Annotated[
        bool, typer.Option("--break-snapshots", help="Also what snapshots see.")
    ] = False,
    by: options.By = None,
    json: options.Json = False,
) -> None:
    """Say how long a kind of data is kept. The service lets go of what is older once a day.

    A session goes as a whole, when its last event is older. By default what a snapshot sees stays
    until the snapshot is dropped.

    Example: penstock retention set events 90d
    """
    from penstock.privacy.retention import set_rule

    age_s = None if age == _FOR_EVER else options.age_seconds("The age", age)
    with open_existing(data) as lake:
        who = options.actor(by)
        set_rule(lake, kind, age_s, tenant=tenant, breaks_snapshots=break_snapshots, by=who)
    whose = f"of {tenant}" if tenant else "of all tenants without a rule of their own"
    show_json({"kind": kind, "tenant": tenant, "age_s": age_s}) if json else say(
        f"{kind} {whose}: kept {'for ever' if age_s is None else age}"
    )


@app.command("list")
def list_(data: options.Data = None, *, json: options.Json = False) -> None:
    """All rules.

    Example: penstock retention list
    """
    from penstock.privacy.retention import DAY_SECONDS, list_rules

    with open_existing(data) as lake:
        rules = list_rules(lake)
    if json:
        show_json([facts(rule) for rule in rules])
        return
    rows: list[list[object]] = []
    for rule in rules:
        kept = "for ever" if rule.age_s is None else f"{rule.age_s / DAY_SECONDS:g} days"
        breaks = "yes" if rule.breaks_snapshots else "no"
        rows.append([rule.tenant or "(all others)", rule.kind, kept, breaks, rule.set_by])
    show_table(["tenant", "kind", "kept", "breaks snapshots", "set by"], rows)


@app.command()
def run(
    data: options.Data = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")] = False,
    by: options.By = None,
    json: options.Json = False,
) -> None:
    """Let go of what is too old by the rules, now.

    Example: penstock retention run --dry-run
    """
    from contextlib import nullcontext
    from dataclasses import asdict

    from penstock.lake.upkeep import upkeep_by_hand
    from penstock.privacy.retention import run_rules

    with open_existing(data) as lake, nullcontext() if dry_run else upkeep_by_hand(lake):
        outcomes = list(run_rules(lake, dry=dry_run, by=options.actor(by)))
    if json:
        show_json([asdict(outcome) for outcome in outcomes])
        return
    rows: list[list[object]] = []
    for outcome in outcomes:
        count = outcome.count
        rows.append([outcome.tenant, outcome.kind, count.sessions, count.rows, count.bytes])
    show_table(["tenant", "kind", "sessions", "rows", "bytes"], rows)
    for outcome in outcomes:
        for name, size in outcome.count.held.items():
            say(f"the snapshot {name} keeps {size} bytes of {outcome.kind} that old")
