"""`penstock sessions`: which there are, one as a person reads it, and many as files."""

from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import open_desk
from penstock.terminal import options
from penstock.terminal.long_commands import spinner_of
from penstock.terminal.output import say, say_more, show_json, show_styled, show_table

app = typer.Typer(help="Sessions, to be looked through and read.", no_args_is_help=True)

Definition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="NAME",
        help="Rewards by this definition, by name or version; else by the one that ran last.",
    ),
]


@app.command("list")
def list_(
    *,
    project: Annotated[str | None, typer.Option("--project", help="Of this project.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Served by this one last.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option("--outcome", help="scored, negative_by_rule, censored, excluded or pending."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Heard of since: a time, or an age such as 24h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Not heard of since: a time, or an age.")
    ] = None,
    worth_min: Annotated[
        float | None, typer.Option("--worth-min", help="Worth so much at least.")
    ] = None,
    worth_max: Annotated[
        float | None, typer.Option("--worth-max", help="Worth so much at most.")
    ] = None,
    words: Annotated[
        str | None,
        typer.Option("--words", help="In a message, an answer, an output or a path, in any case."),
    ] = None,
    definition: Definition = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many.")] = 50,
    cursor: Annotated[
        str, typer.Option("--cursor", help="Those behind: the `next` of a list before.")
    ] = "",
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Sessions, the newest first, with how they ended.

    Example: penstock sessions list --outcome negative_by_rule --since 24h
    """
    from penstock_jobs.rewards.outcomes import Kind
    from penstock_jobs.sessions.session_list import LIST_SESSIONS, SessionsQuestion

    if outcome is not None and outcome not in get_args(Kind):
        why = f"outcomes are {', '.join(get_args(Kind))}"
        raise InvalidInput(what=f"--outcome {outcome}", why=why)
    question = SessionsQuestion(
        project=project,
        checkpoint=checkpoint,
        outcome=cast(Kind | None, outcome),
        since=since,
        until=until,
        worth_min=worth_min,
        worth_max=worth_max,
        words=words,
        definition=definition,
        cursor=cursor,
        limit=limit,
    )
    with open_desk(data, url, tenant) as desk:
        page = desk.ask(LIST_SESSIONS, question)
    if json:
        show_json(page)
        return
    columns = ["session", "last heard of", "project", "checkpoint", "turns", "edits", "outcome"]
    rows = []
    for listed in page.sessions:
        worth = None if listed.value is None else f"{listed.value:+.3f}"
        served = (listed.project, listed.checkpoint, listed.user_messages, listed.edits)
        rows.append(
            [listed.session_id, listed.last_ts, *served, listed.outcome, worth, listed.reason]
        )
    show_table([*columns, "worth", "why"], rows)
    say_more(page.next)


@app.command("show")
def show(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id.")],
    *,
    whole: Annotated[
        bool, typer.Option("--whole", help="All of long texts, outputs and diffs.")
    ] = False,
    definition: Definition = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """One session: messages, thinking, tool calls, edits with what became of them, and rewards.

    Lines of an edit that are there still are green, those that the agent did again yellow, those
    that are gone red.

    Example: penstock sessions show s-81f3
    """
    from penstock_jobs.sessions.edit_fates import bucket_of, read_whole_session
    from penstock_jobs.sessions.transcript import head_lines, transcript_lines

    with open_desk(data, url, tenant) as desk:
        record = read_whole_session(desk, session, definition)
        if json:
            show_json(record)
            return
        bucket = bucket_of(desk, record)
    show_styled(head_lines(record))
    show_styled(transcript_lines(record, bucket, whole=whole))


@app.command("export")
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
