"""`penstock channels follow`."""

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import InvalidInput
from penstock.events.tenants import TENANT_DEFAULT
from penstock.fleet.fleet import PartName
from penstock.lake.directory import open_existing
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.output import encode

if TYPE_CHECKING:
    from penstock.fleet.sidecar import Sidecar
    from penstock.fleet.sources import Source

Url = Annotated[
    str | None,
    typer.Option(help="Ask this service; its key is in PENSTOCK_KEY. Else the database is asked."),
]


def follow(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The channel.")],
    *,
    execute: Annotated[
        str,
        typer.Option("--exec", metavar="COMMAND", help="Loads a checkpoint into the engine."),
    ],
    check: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="Ends with 0 while the engine has it; else it is loaded again."
        ),
    ] = None,
    url: Url = None,
    replica: Annotated[
        str,
        typer.Option(
            default_factory=socket.gethostname,
            show_default="the host's name",
            help="What this engine is called; each has a name of its own.",
        ),
    ],
    part: Annotated[
        PartName, typer.Option(help="Follow the canary's checkpoint while there is one.")
    ] = "main",
    into: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="DIR",
            help="Where copies are kept; else serving/NAME in the data directory.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Load what the channel is at, and end.")
    ] = False,
    assume_loaded: Annotated[
        bool,
        typer.Option(
            "--assume-loaded", help="At the start the engine has what was loaded into it last."
        ),
    ] = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Fetch and verify what a channel points at, have a command load it, and report that, until
    SIGTERM or Ctrl-C. With --json, a JSON document a line.

    The command is told PENSTOCK_FOLDER, PENSTOCK_CHECKPOINT and more (docs/serving.md), and is
    tried again where it does not end with 0.

    Example: penstock channels follow production --url http://penstock:8787 --exec ./load.sh
    """
    from penstock.checkpoints.names import check_name
    from penstock.fleet import sidecar as serving
    from penstock.fleet.copies import locked

    for option, command in (("--exec", execute), ("--check", check)):
        if command is not None and not command.strip():
            raise InvalidInput(what=option, why="it names no command")
    settings = load_settings(data)
    plan = serving.Plan(
        channel=name,
        part=part,
        replica=check_name("The name of a replica", replica),
        directory=(into or settings.data / "serving" / name).absolute(),
        execute=execute,
        check=check,
        once=once,
        assume_loaded=assume_loaded,
    )
    with _source(url, data, tenant, name) as source, locked(plan.directory) as lock:
        sidecar = serving.Sidecar(plan, source, settings, lock=lock, tell=_Teller(name, json=json))
        with _ending(sidecar):
            loaded = sidecar.run()
    if not loaded:
        raise typer.Exit(1)


@contextmanager
def _source(url: str | None, data: Path | None, tenant: str, name: str) -> "Iterator[Source]":
    if url is not None:
        from penstock.fleet.service import ServiceSource

        yield ServiceSource(url, name)
        return
    from penstock.channels.channel import channel_state
    from penstock.fleet.database_source import DatabaseSource

    with open_existing(data) as lake:
        channel_state(lake.database, tenant, name)  # a name with a mistake in it is said at once
        yield DatabaseSource(lake.database, lake.settings, tenant, name)


@contextmanager
def _ending(sidecar: "Sidecar") -> Iterator[None]:
    """Signals ask the sidecar to end, and no more than that: some send them twice."""
    before: dict[int, Any] = {
        one: signal.signal(one, lambda *_: sidecar.end_soon())
        for one in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Teller:
    """Lines on standard output, whichever thread has something to say."""

    def __init__(self, channel: str, *, json: bool) -> None:
        self._channel = channel
        self._json = json
        self._lock = Lock()

    def __call__(self, kind: str, text: str, facts: dict[str, Any]) -> None:
        at = datetime.now(UTC)
        if self._json:
            named = {"at": at.isoformat(), "event": kind, "channel": self._channel}
            line = encode(named | facts | {"text": text}).decode()
        else:
            version = f" {facts['version']}" if "version" in facts else ""
            line = f"{at:%Y-%m-%d %H:%M:%S}  {self._channel}{version}  {' '.join(text.split())}"
        with self._lock, suppress(BrokenPipeError):  # nobody reads it; the engine is served
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
