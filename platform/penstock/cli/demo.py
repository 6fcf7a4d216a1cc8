"""`penstock demo`: the main job, as far as it is built, on generated sessions."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.ledger import show_report
from penstock.cli.opening import open_existing
from penstock.cli.output import say, show_json, show_table
from penstock.errors import InvalidInput
from penstock.ingest.ledger import read_ledger
from penstock.lake.rendering import rows_of
from penstock.testing.client import Client
from penstock.testing.server import running_server
from penstock.testing.sessions import batches, generate_sessions, interleave

QUESTIONS = [
    (
        "What do agents and users do?",
        "select type, count(*) as events, round(avg(length(payload))) as mean_bytes\n"
        "from events group by type order by events desc",
    ),
    (
        "Which tools fail, and how?",
        "select tool, count(*) as calls, count(*) filter (where not ok) as failed,\n"
        "       mode(error_class) as mostly\n"
        "from tool_calls group by tool order by failed desc limit 5",
    ),
    (
        "What did users say after an edit?",
        'select m.project, m."user", m.text\n'
        "from user_messages m join edits e using (session_id)\n"
        "where m.ts > e.ts group by all order by min(m.ts) limit 5",
    ),
]


def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="A fresh data directory, kept afterwards; a temporary one by default."),
    ] = None,
    sessions: Annotated[int, typer.Option(help="How many sessions to stream.", min=1)] = 500,
    seconds: Annotated[
        float | None, typer.Option(help="Stop streaming after so long.", min=0)
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed streams the same sessions.")] = 7,
    json: options.Json = False,
) -> None:
    """Start the service on a fresh data directory, stream generated sessions in over HTTP, and
    look at what arrived: the ledger, and three queries.

    Example: penstock demo --sessions 200
    """
    with _fresh_directory(data) as directory:
        say(f"1. Starting the service with its data in {directory}")
        with running_server(directory) as server:
            say(f"2. Streaming {sessions} sessions to {server.url}/v1/events")
            with server.client() as client:
                sent = _stream(client, sessions, seed, seconds)
            say(f"   {sent['accepted']} events acknowledged, {sent['rejected']} lines rejected")
            say("3. Asking at once: what is not in a segment yet is read from the event log")
            answers = _ask(directory, show=not json)
        say("4. The service has stopped and stored the rest. The ledger:")
        with open_existing(directory) as lake:
            report = read_ledger(lake)
        if json:
            show_json({"sent": sent, "answers": answers, "ledger": report})
        else:
            show_report(report)
            _say_what_next(directory, kept=data is not None)
    if report.discrepancies:
        raise typer.Exit(1)


@contextmanager
def _fresh_directory(data: Path | None) -> Iterator[Path]:
    if data is None:
        directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        try:
            yield directory
        finally:
            shutil.rmtree(directory)
        return
    if data.exists() and any(data.iterdir()):
        raise InvalidInput(what=f"--data {data}", why="the demo wants a directory that is empty")
    yield data


def _stream(client: Client, count: int, seed: int, seconds: float | None) -> dict[str, int]:
    start = datetime(2026, 11, 2, 9, tzinfo=UTC)
    events = interleave(generate_sessions(count, seed, start=start), concurrent=50, seed=seed)
    deadline = None if seconds is None else time.monotonic() + seconds
    sent = {"accepted": 0, "rejected": 0}
    for body in batches(events, 100):
        answer = client.send_events(body)
        sent["accepted"] += answer["accepted"]
        sent["rejected"] += len(answer["rejected"])
        if deadline is not None and time.monotonic() > deadline:
            break
    return sent


def _ask(directory: Path, *, show: bool) -> list[dict[str, object]]:
    answers: list[dict[str, object]] = []
    with open_existing(directory) as lake:
        for question, sql in QUESTIONS:
            with lake.query(sql).run() as answer:
                columns = answer.batches.schema.names
                rows = [row for batch in answer.batches for row in rows_of(batch)]
            answers.append({"question": question, "sql": sql, "rows": rows})
            if show:
                say(f"\n   {question}\n\n{indent(sql, '     ')}\n")
                show_table(columns, [list(row.values()) for row in rows])
    return answers


def _say_what_next(directory: Path, *, kept: bool) -> None:
    if kept:
        say(f'\nTry: penstock query --data {directory} "describe edits"')
        say(f"     penstock serve --data {directory}")
    else:
        say("\nTry: penstock serve, and the five minutes of README.md")
