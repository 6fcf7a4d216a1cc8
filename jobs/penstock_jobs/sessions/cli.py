"""`penstock sessions`: which there are, one as a person reads it, and many as files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import (
    say,
    say_next_page,
    show_styled,
    show_table,
    show_text,
    spinner_of,
)
from penstock.core.endpoint import Client
from penstock.core.errors import StoreNeeded
from penstock.events.event import CONSENT_UNKNOWN, TENANT_DEFAULT
from penstock.lake.client import LocalClient
from penstock.lake.commands import asks, command
from penstock_jobs.sessions.endpoints import LIST_SESSIONS
from penstock_jobs.sessions.session_page import SessionPage

app = typer.Typer(help="Sessions, to be looked through and read.", no_args_is_help=True)

Definition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="NAME",
        help="Rewards by this definition, by name or version; else by the one that ran last.",
    ),
]


RewardDefinition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="FILE|NAME",
        help="A definition in TOML, or one that comes with Penstock: default, comparing.",
    ),
]


@app.command("list")
@asks(LIST_SESSIONS)
def list_(page: SessionPage) -> None:
    """Sessions, the newest first, with how they ended.

    Example: penstock sessions list --outcome negative_by_rule --since 24h
    """
    columns = ["session", "last heard of", "project", "checkpoint", "turns", "edits", "outcome"]
    rows = []
    for listed in page.sessions:
        worth = None if listed.value is None else f"{listed.value:+.3f}"
        served = (listed.project, listed.checkpoint, listed.user_messages, listed.edits)
        rows.append(
            [listed.session_id, listed.last_ts, *served, listed.outcome, worth, listed.reason]
        )
    show_table([*columns, "worth", "why"], rows)
    say_next_page(page.next)


@app.command()
@command()
def show(
    client: Client,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id.")],
    *,
    whole: Annotated[
        bool, typer.Option("--whole", help="All of long texts, outputs and diffs.")
    ] = False,
    definition: Definition = None,
) -> Iterator[object]:
    """One session: messages, thinking, tool calls, edits with what became of them, and rewards.

    Lines of an edit that are there still are green, those that the agent did again yellow, those
    that are gone red.

    Example: penstock sessions show s-81f3
    """
    from penstock_jobs.sessions.edit_fates import bucket_of, read_whole_session
    from penstock_jobs.sessions.transcript import head_lines, transcript_lines

    record = read_whole_session(client, session, definition)
    yield record
    bucket = bucket_of(client, record)
    show_styled(head_lines(record))
    show_styled(transcript_lines(record, bucket, whole=whole))


@app.command()
@command()
def export(
    client: Client,
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
) -> Iterator[object]:
    """Write sessions in a form that other tools read. Importing them again gives the same events.

    Example: penstock sessions export "select session_id from sessions" --format atif --out runs
    """
    from penstock_jobs.sessions.export import export_sessions

    with spinner_of("writing"):
        report = export_sessions(client, query, form, out, as_of)
    yield report
    say(f"{report.sessions} sessions with {report.events} events in {out}")


@command()
def explain(
    client: Client,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id.")],
    definition: RewardDefinition = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Why a session is worth what it is: each term of its reward, its outcome and the reason, its
    chain, the conversation, and all rewards of its edits and turns.

    It is what the newest run computed. With --definition, or where no run was, it is computed now.

    Example: penstock rewards show s-81f3
    """
    from penstock_jobs.rewards.definition import DEFAULT, find_definition
    from penstock_jobs.rewards.explanation import computed_rewards
    from penstock_jobs.rewards.report import show_all_rewards, show_explanation
    from penstock_jobs.sessions.edit_fates import bucket_of, read_whole_session
    from penstock_jobs.sessions.transcript import transcript_lines

    if definition and not isinstance(client, LocalClient):
        raise StoreNeeded(command="penstock rewards show --definition")
    chosen = find_definition(definition or DEFAULT)
    record = read_whole_session(client, session)
    if isinstance(client, LocalClient) and (definition or record.explanation is None):
        consent = record.session["consent"] if record.session else CONSENT_UNKNOWN
        computed = computed_rewards(client.lake, session, tenant, chosen, consent)
        record.explanation, record.rewards = computed.explanation, computed.rows
    yield {"explanation": record.explanation, "rewards": record.rewards}
    bucket = bucket_of(client, record)
    if record.explanation is None:
        say("No run has computed it yet: `penstock rewards run` does, on the lake's machine.")
    else:
        show_explanation(record.explanation)
    show_styled(transcript_lines(record, bucket))
    show_text("")
    show_all_rewards(record.rewards)
