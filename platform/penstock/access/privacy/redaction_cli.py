"""`penstock redaction`."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from penstock.backends.terminal.output import data_output, say, show_rows, show_table
from penstock.lake.commands import asks, command

if TYPE_CHECKING:
    from penstock.events.redaction.line_redaction import LineRedactor
    from penstock.events.redaction.rules import RuleBook

app = typer.Typer(help="What is masked in events before they are kept.", no_args_is_help=True)

_TEXT_BYTES_MAX = 64 * 1024 * 1024


@app.command("rules")
@command()
def list_rules(data: options.Data = None) -> Iterator[object]:
    """The rules, and what becomes of an event in which each finds something.

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


@app.command("modes")
@asks(LIST_REDACTIONS)
def list_modes(answer: RedactionsAnswer) -> None:
    """What becomes of events with secrets or personal data, of tenants with modes of their own.

    Example: penstock redaction modes
    """
    rows: list[list[object]] = [
        [row.tenant, row.secrets, row.personal, ", ".join(row.own) or None]
        for row in answer.tenants
    ]
    show_table(["tenant", "secrets", "personal", "own"], rows)


@app.command("set")
@asks(SET_REDACTION, by=True)
def set_modes(answer: RedactionAnswer) -> None:
    """Give a tenant modes of its own. Running services follow within seconds.

    With --url it is the key's tenant, and redaction may only become stricter.

    Example: penstock redaction set --tenant acme --personal mask
    """
    say(f"{answer.tenant}: secrets {answer.secrets}, personal data {answer.personal}")


@app.command("counts")
@asks(COUNT_REDACTIONS, tenant=False)
def show_counts(page: CountsAnswer) -> None:
    """How often each rule had a match, by source and hour of arrival.

    Example: penstock redaction counts --since 24h
    """
    show_rows(page.counts, "tenant", "source", "hour", "rule", "matches")


@app.command("test")
@command()
def try_rules(
    file: Annotated[Path, typer.Argument(help="A file of events or of any text; - is the input.")],
    data: options.Data = None,
    *,
    all_rules: Annotated[
        bool, typer.Option("--all", help="Also with the rules whose mode is off.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Write the text as it would be kept.")
    ] = False,
) -> Iterator[object]:
    """What would be redacted, by rule. Changes and keeps nothing.

    Example: penstock redaction test events.ndjson --all
    """
    from penstock.core.toml_document import read_bounded
    from penstock.events.redaction.line_redaction import LineRedactor

    everything, used = _books(data)
    if str(file) == "-":
        content = sys.stdin.buffer.read(_TEXT_BYTES_MAX)
    else:
        content = read_bounded(file, _TEXT_BYTES_MAX, str(file))
    # Nothing is kept, so that any key does.
    redactor = LineRedactor(everything if all_rules else used, lambda: b"test")
    masked, counts = _mask(redactor, content)
    if show:
        data_output().write(masked)
        return
    yield {"matches": [{"rule": rule, "count": n} for rule, n in sorted(counts.items())]}
    show_table(["rule", "matches"], [[rule, n] for rule, n in sorted(counts.items())])


def _books(data: Path | None) -> "tuple[RuleBook, RuleBook]":
    """All rules there are, and those that are in use."""
    from dataclasses import replace

    from penstock.core.settings import load_settings
    from penstock.events.redaction.rules import RedactionSettings

    settings = load_settings(data).room(RedactionSettings)
    everything = replace(settings, redact_secrets="mask", redact_personal="mask")
    return everything.rule_book(), settings.rule_book()


def _mask(redactor: "LineRedactor", content: bytes) -> tuple[bytes, Counter[str]]:
    """Events a line, or one text: there a secret may have several lines."""
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
