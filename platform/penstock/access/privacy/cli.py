"""`penstock erase` and `penstock retention`."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.access.privacy.endpoints import (
    COUNT_REDACTIONS,
    LIST_REDACTIONS,
    SET_REDACTION,
    CountsAnswer,
    RedactionAnswer,
    RedactionsAnswer,
)
from penstock.backends.terminal import options
from penstock.backends.terminal.output import (
    data_output,
    facts,
    say,
    show_rows,
    show_table,
    time_of,
)
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, asks, command
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    from penstock.events.redaction.line_redaction import LineRedactor
    from penstock.events.redaction.rules import RuleBook


@command()
def erase(
    lake: Lake,
    *,
    user: Annotated[
        str | None,
        typer.Option(metavar="U", help="A user: events that name it, and sessions that it began."),
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="S", help="One session.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="P", help="A project, in the same way.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="T", help="The tenant; alone, all of its data.")
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason, which the report contains.")] = "",
    by: options.By = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume interrupted erasures.")] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Show the reports of all erasures.")
    ] = False,
    verify: Annotated[
        str | None, typer.Option(metavar="FILE", help="Verify that a report was not altered.")
    ] = None,
) -> Iterator[object]:
    """Erase a user, session, project or tenant, with everything made from it.

    No import, retry or replay brings it back. Events that arrive meanwhile are stored as usual. An
    interrupted erasure can be resumed. It ends with a signed report.

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
            say("No erasure was interrupted.")
    else:
        scope = _scope(lake, user=user, session=session, project=project, tenant=tenant)
        reached = count_reach(lake, scope)
        what = f"{scope.kind} {scope.value}"
        if dry_run:
            yield {"kind": scope.kind, "tenant": scope.tenant, "sessions": reached}
            say(f"{what}: {reached} sessions would be erased, as a whole or in part")
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
        why = "give one of --user, --session, --project, or --tenant alone"
        raise InvalidInput(what="penstock erase", why=why)
    kind, value = named[0] if named else ("tenant", str(tenant))
    if not value:
        raise InvalidInput(what=f"--{kind}", why="it is empty")
    with lake.database.read() as connection:
        now_us = clock_us(connection)
    return ErasureScope(tenant or TENANT_DEFAULT, kind, value, now_us)


def _show(report: dict[str, Any]) -> None:
    rows: list[list[object]] = [["sessions", report["sessions"]]]
    if in_part := report["sessions_in_part"]:
        rows.append(["sessions of others, in part", in_part])
    rows += [[what, count] for what, count in report["removed"].items()]
    show_table(["erased", "count"], rows)
    for what, names in report["seen_by"].items():
        say(f"{what} that contained it: {', '.join(names)}")
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
    """Exit 1 unless the report is genuine. Raises InvalidInput."""
    from pathlib import Path

    from penstock.core.lake_keys import HeadKeys, SigningKey, signed_document

    try:
        report = signed_document(Path(name).read_bytes(), name)
    except OSError as error:
        raise InvalidInput(what=name, why=error.strerror or str(error)) from error
    genuine = HeadKeys(SigningKey.of(lake.settings)).have_signed(report)
    yield Outcome({"genuine": genuine}, failed=not genuine)
    text = "is genuine" if genuine else "was altered, or another lake wrote it"
    say(f"The report {text}.")


retention_app = typer.Typer(help="How long data are kept.", no_args_is_help=True)

_FOR_EVER = "never"
Tenant = Annotated[
    str, typer.Option(help="The tenant; by default all tenants without their own rule.")
]


@retention_app.command("set")
@command()
def set_(
    lake: Lake,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="The kind of data; a wrong one lists all kinds.")
    ],
    age: Annotated[
        str, typer.Argument(metavar="AGE", help="An age such as 90d; `never` keeps it for ever.")
    ],
    tenant: Tenant = "",
    *,
    break_snapshots: Annotated[
        bool, typer.Option("--break-snapshots", help="Also remove what snapshots see.")
    ] = False,
    by: options.By = None,
) -> Iterator[object]:
    """Set how long a kind of data is kept. The service removes older data once a day.

    A session is removed as a whole, once its last event is too old. By default what a snapshot sees
    stays until the snapshot is dropped.

    Example: penstock retention set events 90d
    """
    from penstock.access.privacy.retention import set_rule

    age_s = None if age == _FOR_EVER else options.age_seconds("The age", age)
    who = options.actor(by)
    set_rule(lake, kind, age_s, tenant=tenant, breaks_snapshots=break_snapshots, by=who)
    yield {"kind": kind, "tenant": tenant, "age_s": age_s}
    whose = f"of {tenant}" if tenant else "of all tenants without their own rule"
    say(f"{kind} {whose}: kept {'for ever' if age_s is None else age}")


@retention_app.command("list")
@command()
def list_(lake: Lake) -> Iterator[object]:
    """List all rules.

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
    """Remove now what is too old by the rules.

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


redaction_app = typer.Typer(
    help="Masking of secrets in events before they are stored.", no_args_is_help=True
)

_TEXT_BYTES_MAX = 64 * 1024 * 1024


@redaction_app.command("rules")
@command()
def list_rules(data: options.Data = None) -> Iterator[object]:
    """List the rules, and what happens to events that match each.

    Example: penstock redaction rules
    """
    everything, used = _books(data)
    rows = [
        {
            "rule": rule.id,
            "kind": rule.kind,
            "placeholder": rule.type,
            "mode": used.modes.get(rule.id, "off"),
        }
        for rule in everything.rules
    ]
    yield {"rules": rows}
    show_table(["rule", "kind", "placeholder", "mode"], [list(row.values()) for row in rows])


@redaction_app.command("modes")
@asks(LIST_REDACTIONS)
def list_modes(answer: RedactionsAnswer) -> None:
    """List the redaction modes of tenants that have their own.

    Example: penstock redaction modes
    """
    rows: list[list[object]] = [
        [row.tenant, row.secrets, row.personal, ", ".join(row.own) or None]
        for row in answer.tenants
    ]
    show_table(["tenant", "secrets", "personal", "own"], rows)


@redaction_app.command("set")
@asks(SET_REDACTION, by=True)
def set_modes(answer: RedactionAnswer) -> None:
    """Set a tenant's redaction modes. Running services follow within seconds.

    With --url it is the key's tenant, and redaction can only become stricter.

    Example: penstock redaction set --tenant acme --personal mask
    """
    say(f"{answer.tenant}: secrets {answer.secrets}, personal data {answer.personal}")


@redaction_app.command("counts")
@asks(COUNT_REDACTIONS, tenant=False)
def show_counts(page: CountsAnswer) -> None:
    """Show the matches of each rule, by source and hour of arrival.

    Example: penstock redaction counts --since 24h
    """
    show_rows(page.counts, "tenant", "source", "hour", "rule", "matches")


@redaction_app.command("test")
@command()
def try_rules(
    file: Annotated[Path, typer.Argument(help="A file of events or text; - for standard input.")],
    data: options.Data = None,
    *,
    all_rules: Annotated[
        bool, typer.Option("--all", help="Also use rules whose mode is off.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Write the text as it would be stored.")
    ] = False,
) -> Iterator[object]:
    """Show what would be redacted, by rule. Stores nothing.

    Example: penstock redaction test events.ndjson --all
    """
    from penstock.core.toml_document import read_bounded
    from penstock.events.redaction.line_redaction import LineRedactor

    everything, used = _books(data)
    if str(file) == "-":
        content = sys.stdin.buffer.read(_TEXT_BYTES_MAX)
    else:
        content = read_bounded(file, _TEXT_BYTES_MAX, str(file))
    # Nothing is stored, so any key will do.
    redactor = LineRedactor(everything if all_rules else used, lambda: b"test")
    masked, counts = _mask(redactor, content)
    if show:
        data_output().write(masked)
        return
    yield {"matches": [{"rule": rule, "count": n} for rule, n in sorted(counts.items())]}
    show_table(["rule", "matches"], [[rule, n] for rule, n in sorted(counts.items())])


def _books(data: Path | None) -> "tuple[RuleBook, RuleBook]":
    """All rules, and those in use."""
    from dataclasses import replace

    from penstock.core.settings import load_settings
    from penstock.events.redaction import RedactionSettings
    from penstock.events.redaction.rules import rule_book_of

    settings = load_settings(data).room(RedactionSettings)
    everything = replace(settings, redact_secrets="mask", redact_personal="mask")
    return rule_book_of(everything), rule_book_of(settings)


def _mask(redactor: "LineRedactor", content: bytes) -> tuple[bytes, Counter[str]]:
    """Mask one event per line, or one text, where a secret may span lines."""
    from penstock.events.redaction.line_redaction import is_json

    lines = content.split(b"\n")
    if not all(is_json(line) for line in lines if line.strip()):
        return redactor.mask_line(content)
    counts: Counter[str] = Counter()
    masked: list[bytes] = []
    for line in lines:
        text, of_line = redactor.mask_line(line)
        masked.append(text)
        counts += of_line
    return b"\n".join(masked), counts
