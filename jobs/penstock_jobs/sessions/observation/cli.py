"""`penstock observe`."""

import os
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.http.errors import ServerUnreachable
from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import ended_as_by_ctrl_c
from penstock.backends.terminal.output import say, show_json
from penstock.core.errors import Backlogged
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client, service_url

if TYPE_CHECKING:
    from penstock_jobs.sessions.observation.observer import ObservedRound, Observer

#: A service is not asked more often.
_EVERY_SECONDS_MIN = 5.0


def observe(
    folder: Annotated[
        Path, typer.Argument(parser=options.path, metavar="PATH", help="Where the files are.")
    ],
    data: options.AnyData = None,
    url: options.Url = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="One round, for cron, instead of going on.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            min=_EVERY_SECONDS_MIN, metavar="SECONDS", help="How often to ask for new edits."
        ),
    ] = 30.0,
    definition: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Of rewards: its horizons say when to look.")
    ] = "default",
    project: Annotated[str | None, typer.Option(help="Only sessions of this project.")] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Look at files that sessions edited, and tell what became of them. It looks at the horizons of
    rewards and when the branch moves, so that rewards need no editor.

    Files that Git ignores, that are outside of the folder, or over 512 KiB are not read.

    Example: penstock observe ~/src/shop --url https://penstock.example.org
    """
    from penstock.core.clock import SystemClock
    from penstock_jobs.rewards.definition import find_definition
    from penstock_jobs.sessions.observation.looks import WorkTree, kept_memory, windows_of
    from penstock_jobs.sessions.observation.observer import Observer

    tree, windows = WorkTree(folder), windows_of(find_definition(definition))
    own = data or Path(os.environ.get("PENSTOCK_DATA") or "penstock-data")
    lake = f"{service_url(data, url) or own.resolve()} {tenant} {project or ''}"
    with kept_memory(tree.folder, lake) as memory, open_client(data, url, tenant) as client:
        observer = Observer(client, tree, windows, memory, SystemClock(), project=project)
        if once:
            _show(observer.round(), json=json)
            return
        say(f"Observing {tree.folder}; Ctrl-C ends it.")
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
    say(f"{done.edits} edits became known, {done.sent} observations of files sent")
    for why, number in sorted(done.left_out.items()):
        say(f"left out: {number} files: {why}")
