"""The page of commands, from what `--help` says of each."""

from collections.abc import Iterator
from typing import Any

import typer

from bench.reference import template
from penstock.doors.cli import app

_SHARED = {
    "--data DIR": "Data directory; else PENSTOCK_DATA, else ./penstock-data.",
    "--url URL": "Ask this service; else PENSTOCK_URL, else the one of `penstock login`."
    " PENSTOCK_KEY is the key.",
    "--tenant TENANT": "Whose events; keys carry a tenant.  [default: default]",
    "--json": "Answer with one JSON document on standard output.",
}


def commands_page() -> str:
    shared = [f"- `{name}`: {_one_line(text)}\n" for name, text in _SHARED.items()]
    return template("commands") + "".join(
        [*shared, *_sections(typer.main.get_command(app), "penstock", "##")]
    )


def _sections(group: Any, name: str, level: str) -> Iterator[str]:
    for part in group.list_commands(None):
        command, full = group.get_command(None, part), f"{name} {part}"
        yield f"\n{level} {full}\n"
        if hasattr(command, "list_commands"):
            yield f"\n{_one_line(command.help)}\n"
            yield from _sections(command, full, f"{level}#")
        else:
            yield from _command(command, full)


def _command(command: Any, name: str) -> Iterator[str]:
    for paragraph in command.help.split("\n\n"):
        example = paragraph.removeprefix("Example: ")
        yield f"\n{_one_line(paragraph)}\n" if example == paragraph else f"\n```\n{example}\n```\n"
    context = typer.Context(command, info_name=name)
    records = [
        record for each in command.get_params(context) if (record := each.get_help_record(context))
    ]
    own = [f"- `{about}`: {_one_line(text)}\n" for about, text in records if not _same(about, text)]
    own = [line for line in own if not line.startswith("- `--help`")]
    yield "\n" * bool(own) + "".join(own)
    if shared := [f"`{about.split()[0]}`" for about, text in records if _same(about, text)]:
        yield f"\nShared: {', '.join(shared)}.\n"


def _same(about: str, text: str) -> bool:
    return _SHARED.get(about) == text


def _one_line(text: str) -> str:
    return " ".join(text.split())
