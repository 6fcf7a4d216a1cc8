"""`penstock sessions export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import open_desk
from penstock.terminal import options
from penstock.terminal.long_commands import spinner_of
from penstock.terminal.output import say, show_json


def export(
    query: Annotated[
        str, typer.Argument(metavar="SQL", help="Selects session_id: which sessions.")
    ] = "SELECT session_id FROM sessions",
    *,
    form: Annotated[
        Literal["atif", "messages"],
        typer.Option("--format", help="atif: a document a session; messages: a line a session."),
    ],
    out: Annotated[
        Path, typer.Option("--out", parser=options.path, help="A new folder, or a new file.")
    ],
    as_of: Annotated[
        str | None, typer.Option(help="A snapshot's name, or a time: the lake as it was.")
    ] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Write sessions in a form that other tools read. Importing them again gives the same events.

    Example: penstock sessions export "select session_id from sessions" --format atif --out runs
    """
    from penstock_jobs.sessions.export import export_sessions

    with open_desk(data, url, tenant) as desk, spinner_of("writing"):
        report = export_sessions(desk, query, form, out, as_of)
    if json:
        show_json(report)
    else:
        say(f"{report.sessions} sessions with {report.events} events in {out}")
