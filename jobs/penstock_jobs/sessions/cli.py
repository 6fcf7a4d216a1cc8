"""`penstock sessions`, `penstock rewards show` and `penstock observe`."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.backends.http import ServerUnreachable
from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import ended_as_by_ctrl_c
from penstock.backends.terminal.output import (
    say,
    say_next_page,
    show_json,
    show_styled,
    show_table,
    show_text,
    spinner_of,
)
from penstock.core.endpoint import Caller, Client
from penstock.core.errors import Backlogged, StoreNeeded
from penstock.events.event import CONSENT_UNKNOWN, TENANT_DEFAULT
from penstock.lake.client import LocalClient, open_client, service_url
from penstock.lake.commands import asks, command
from penstock.lake.lake import Lake
from penstock_jobs.sessions.endpoints import LIST_SESSIONS
from penstock_jobs.sessions.session_page import SessionPage

if TYPE_CHECKING:
    from penstock_jobs.sessions.observer import ObservedRound, Observer


_TITLE_CHARS_MAX = 60

app = typer.Typer(help="List, read and export sessions.", no_args_is_help=True)

Definition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="NAME",
        help="Definition of the rewards, by name or version. Default: the one that ran last.",
    ),
]


SessionsQuery = Annotated[
    str, typer.Argument(metavar="SQL", help="Query for the session_id of the sessions.")
]
AsOf = Annotated[str | None, typer.Option(help="Read the lake as of a snapshot or a time.")]
ALL_SESSIONS = "SELECT session_id FROM sessions"

RewardDefinition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="FILE|NAME",
        help="A definition in TOML, or a built-in one: default, comparing.",
    ),
]


@app.command("list")
@asks(LIST_SESSIONS)
def list_(page: SessionPage) -> None:
    """List sessions with their outcomes, the newest first.

    Example: penstock sessions list --outcome negative_by_rule --since 24h
    """
    columns = ["session", "asked", "last event", "project", "client", "model", "checkpoint"]
    rows = []
    for listed in page.sessions:
        worth = None if listed.value is None else f"{listed.value:+.3f}"
        title = " ".join((listed.opening or "").split())[:_TITLE_CHARS_MAX] or None
        made = (listed.project, listed.client, listed.model, listed.checkpoint)
        ended = (listed.user_messages, listed.edits, listed.outcome, worth, listed.reason)
        rows.append([listed.session_id, title, listed.last_ts, *made, *ended])
    show_table([*columns, "turns", "edits", "outcome", "reward", "why"], rows)
    say_next_page(page.next)


@app.command()
@command()
def show(
    client: Client,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session.")],
    *,
    whole: Annotated[
        bool, typer.Option("--whole", help="Show long texts, outputs and diffs completely.")
    ] = False,
    definition: Definition = None,
) -> Iterator[object]:
    """Show a session: messages, thinking, tool calls, edits and what became of them, rewards.

    Lines of an edit are green if they survived, yellow if the agent reworked them, red if gone.

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
    query: SessionsQuery = ALL_SESSIONS,
    *,
    form: Annotated[
        Literal["atif", "messages"],
        typer.Option(
            "--format", help="atif: a document per session; messages: a line per session."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", parser=options.path, help="A new folder or file.")],
    as_of: AsOf = None,
) -> Iterator[object]:
    """Export sessions in a form that other tools read. Importing them gives the same events again.

    Example: penstock sessions export "select session_id from sessions" --format atif --out runs
    """
    from penstock_jobs.sessions.export import export_sessions

    with spinner_of("writing"):
        report = export_sessions(client, query, form, out, as_of)
    yield report
    say(f"{report.sessions} sessions with {report.events} events in {out}")


@app.command()
@command()
def publish(
    lake: Lake,
    query: SessionsQuery = ALL_SESSIONS,
    *,
    license_: Annotated[
        str, typer.Option("--license", help="The Hub's name of a licence, such as cc-by-4.0.")
    ],
    out: Annotated[Path, typer.Option("--out", parser=options.path, help="A new folder.")],
    as_of: AsOf = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Write sessions as a data set for the Hugging Face Hub, with a card, for its trace viewer.

    Only sessions with consent `train` are taken. Nothing is uploaded.

    Example: penstock sessions publish --license cc-by-4.0 --out traces
    """
    from penstock_jobs.sessions.publication import publish_sessions

    client = LocalClient(lake, Caller(tenant, options.actor(None), is_local=True))
    with spinner_of("writing"):
        report = publish_sessions(client, query, license_, out, as_of)
    yield report
    say(f"{report.sessions} sessions with {report.messages} messages in {out}")
    for reason, count in sorted(report.left_out.items()):
        say(f"left out: {reason} {count}")
    say(f"Read {out / 'README.md'} before you upload the folder.")


@command()
def explain(
    client: Client,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session.")],
    definition: RewardDefinition = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Explain a session's reward: its terms, the outcome and its reason, the chain, the
    conversation, and the rewards of edits and turns.

    Shows what the newest run computed. With --definition, or without a run, it is computed now.

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
        say("No run has computed its reward yet: `penstock rewards run`, on the lake's machine.")
    else:
        show_explanation(record.explanation)
    show_styled(transcript_lines(record, bucket))
    show_text("")
    show_all_rewards(record.rewards)


#: Shortest interval between requests to a service.
_EVERY_SECONDS_MIN = 5.0


def observe(
    folder: Annotated[
        Path, typer.Argument(parser=options.path, metavar="PATH", help="Folder with the files.")
    ],
    data: options.AnyData = None,
    url: options.Url = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Make one round and exit, as for cron.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(min=_EVERY_SECONDS_MIN, metavar="SECONDS", help="Interval between rounds."),
    ] = 30.0,
    definition: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Definition of rewards, for its horizons.")
    ] = "default",
    project: Annotated[str | None, typer.Option(help="Only sessions of this project.")] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Observe files that sessions edited, to see what became of the edits.

    Files are read at the horizons of rewards and when the branch moves, so no editor is needed.
    Files that Git ignores, outside the folder or over 512 KiB are not read.

    Example: penstock observe ~/src/shop --url https://penstock.example.org
    """
    from penstock.core.clock import SystemClock
    from penstock_jobs.rewards.definition import find_definition
    from penstock_jobs.sessions.observer import Observer
    from penstock_jobs.sessions.watching import WorkTree, kept_memory, windows_of

    tree, windows = WorkTree(folder), windows_of(find_definition(definition))
    own = data or Path(os.environ.get("PENSTOCK_DATA") or "penstock-data")
    lake = f"{service_url(data, url) or own.resolve()} {tenant} {project or ''}"
    with kept_memory(tree.folder, lake) as memory, open_client(data, url, tenant) as client:
        observer = Observer(client, tree, windows, memory, SystemClock(), project=project)
        if once:
            _show(observer.round(), json=json)
            return
        say(f"Observing {tree.folder} until Ctrl-C.")
        with suppress(KeyboardInterrupt), ended_as_by_ctrl_c():
            _go_on(observer, every, json=json)


def _go_on(observer: "Observer", every_s: float, *, json: bool) -> None:
    trouble = ""
    while True:
        try:
            done = observer.round()
        except (ServerUnreachable, Backlogged) as error:
            if str(error) != trouble:
                say(f"waiting: {error}")
            trouble = str(error)
            time.sleep(every_s)
            continue
        trouble = ""
        if done.sent:
            _show(done, json=json)
        time.sleep(observer.pause_seconds(every_s))


def _show(done: "ObservedRound", *, json: bool) -> None:
    if json:
        show_json(asdict(done))
        return
    say(f"{done.edits} new edits, {done.sent} observations of files sent")
    for why, number in sorted(done.left_out.items()):
        say(f"left out: {number} files: {why}")
