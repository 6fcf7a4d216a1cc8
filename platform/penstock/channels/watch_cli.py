"""`penstock channels watch`."""

import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from penstock.database.errors import DatabaseUnreachable
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import encode, say

_PAUSE_SECONDS = 5.0

Change = dict[str, Any]


def watch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The channel.")],
    *,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Begin after this version; without it, with the newest change."),
    ] = None,
    changes: Annotated[
        int | None, typer.Option("--changes", min=1, help="End after so many changes.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Ask this service; its key is in PENSTOCK_KEY. Else the database is asked."
        ),
    ] = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Show each change of a channel as it comes, in order and none left out, until Ctrl-C. With
    --json, a JSON document a line.

    Example: penstock channels watch production --json
    """
    if url is not None:
        found = _over_http(url, name, after)
    else:
        found = _from_database(data, tenant, name, after)
    try:
        for change in islice(found, changes):
            sys.stdout.write((encode(change).decode() if json else _line(change)) + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _from_database(
    data: Path | None, tenant: str, name: str, after: int | None
) -> Iterator[Change]:
    from penstock.channels.channels import state
    from penstock.channels.watching import POLL_SECONDS, follow

    with open_existing(data) as lake:
        if after is None:
            after = state(lake.database, tenant, name).version - 1
        while True:
            try:
                for one in follow(lake.database, tenant, name, after, poll_s=POLL_SECONDS):
                    after = one.version
                    yield one.document
            except DatabaseUnreachable as error:
                say(f"{error} It is tried again.")
                time.sleep(_PAUSE_SECONDS)


def _over_http(url: str, name: str, after: int | None) -> Iterator[Change]:
    """Raises ServerUnreachable where nobody ever answered; later it tries again."""
    from penstock.http.client import ServiceClient, answers, channel_path

    service = ServiceClient(url)
    if after is None:
        after = max(0, service.ask(channel_path(name), "version")["version"] - 1)
    for answer in answers(service, name, after, say, Event()):
        yield from answer["changes"]


def _line(document: Change) -> str:
    """For a person."""
    from penstock.channels import history
    from penstock.channels.change_documents import marks_of, what_it_did

    at = round(datetime.fromisoformat(document["at"]).timestamp() * 1_000_000)
    names = [one.name for one in fields(history.Change)]
    change = history.Change(**{name: document[name] for name in names} | {"at": at})
    marks = f" [{marks_of(change)}]" if marks_of(change) else ""
    said = f"{what_it_did(change)}{marks}  ({change.actor}: {change.reason})"
    return " ".join(f"{document['at']}  {change.channel} {change.version}  {said}".split("\n"))
