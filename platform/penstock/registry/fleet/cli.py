"""`penstock channels follow` and `penstock channels fleet`."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import on_end_signal
from penstock.backends.terminal.output import (
    say,
    say_next_page,
    show_json_line,
    show_table,
    show_text,
)
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import service_url
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import open_existing
from penstock.registry.channels.cli import Name
from penstock.registry.fleet.fleet_status import PartName

if TYPE_CHECKING:
    from penstock.registry.fleet.registry_source import RegistrySource, TellEvent
    from penstock.registry.fleet.replicas import FleetAnswer, ReplicaAnswer

_LOOK_SECONDS = 0.5


def follow(
    name: Name,
    *,
    execute: Annotated[
        str,
        typer.Option(
            "--exec", metavar="COMMAND", help="A command that loads a checkpoint into the engine."
        ),
    ],
    check: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Exits with 0 while the engine has the checkpoint; otherwise it is reloaded.",
        ),
    ] = None,
    url: options.Url = None,
    replica: Annotated[
        str,
        typer.Option(
            default_factory=socket.gethostname,
            show_default="the host's name",
            help="The name of this engine, unique within the channel.",
        ),
    ],
    part: Annotated[
        PartName, typer.Option(help="Follow the main checkpoint, or the canary while there is one.")
    ] = "main",
    into: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="DIR",
            help="The directory of copies; by default serving/NAME in the data directory.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Load the channel's checkpoint once, then end.")
    ] = False,
    assume_loaded: Annotated[
        bool,
        typer.Option(
            "--assume-loaded",
            help="Assume at the start that the engine still has its last checkpoint.",
        ),
    ] = False,
    data: options.AnyData = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Fetch, verify and load each checkpoint of a channel, and report it, until SIGTERM or Ctrl-C.
    With --json, print one JSON document per line.

    The command gets PENSTOCK_FOLDER, PENSTOCK_CHECKPOINT and other variables (docs/serving.md). It
    is retried unless it exits with 0.

    Example: penstock channels follow production --url http://penstock:8787 --exec ./load.sh
    """
    from penstock.registry.checkpoints.checkpoint import check_channel_name, check_name
    from penstock.registry.fleet.checkpoint_cache import locked
    from penstock.registry.fleet.sidecar import Sidecar, SidecarPlan

    for option, given in (("--exec", execute), ("--check", check)):
        if given is not None and not given.strip():
            raise InvalidInput(what=option, why="it is empty")
    settings = load_settings(data)
    plan = SidecarPlan(
        channel=check_channel_name(name),
        part=part,
        replica=check_name("The name of a replica", replica),
        directory=(into or settings.data / "serving" / name).absolute(),
        execute=execute,
        check=check,
        once=once,
        assume_loaded=assume_loaded,
    )
    tell = _event_lines(name, json=json)
    with _source(url, data, tenant, name, part) as source, locked(plan.directory) as lock:
        sidecar = Sidecar(plan, source, settings, lock=lock, tell=tell)
        with on_end_signal(sidecar.end_soon):
            loaded = sidecar.run()
    if not loaded:
        raise typer.Exit(1)


@contextmanager
def _source(
    url: str | None, data: Path | None, tenant: str, name: str, part: str
) -> "Iterator[RegistrySource]":
    from penstock.registry.fleet.registry_source import lake_source, service_source

    # With --url, --data is the sidecar's own directory.
    if (url := service_url(None if url else data, url)) is not None:
        yield service_source(url, name, part)
        return
    with open_existing(data) as lake:
        source = lake_source(lake, tenant, name, part)
        source.target()  # fail early if the channel does not exist
        yield source


def _event_lines(channel: str, *, json: bool) -> "TellEvent":
    """Print events from any thread to standard output."""
    lock = Lock()

    def tell(kind: str, text: str, facts: dict[str, Any]) -> None:
        at = datetime.now(UTC)
        if json:
            head = {"at": at.isoformat(), "event": kind, "channel": channel}
            show = partial(show_json_line, head | facts | {"text": text})
        else:
            version = f" {facts['version']}" if "version" in facts else ""
            line = f"{at:%Y-%m-%d %H:%M:%S}  {channel}{version}  {' '.join(text.split())}"
            show = partial(show_text, line)
        with (
            lock,
            suppress(BrokenPipeError),
        ):  # nobody reads the output, but the engine is still served
            show()

    return tell


@command()
def fleet(
    client: Client,
    name: Name,
    *,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="Wait up to this long until the fleet is whole."
        ),
    ] = 0.0,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
) -> Iterator[object]:
    """Show the replicas of a channel and what each has loaded. Exit 1 unless all have loaded the
    channel's checkpoint.

    Example: penstock channels fleet production --wait 600
    """
    from penstock.registry.fleet.replicas import SHOW_FLEET, FleetRequest

    until = time.monotonic() + wait
    question = FleetRequest(name=name, limit=limit, cursor=cursor)
    answer = client.call(SHOW_FLEET, question)
    while not answer.whole and (left_s := until - time.monotonic()) > 0:
        time.sleep(min(_LOOK_SECONDS, left_s))
        answer = client.call(SHOW_FLEET, question)
    yield Outcome(answer, failed=not answer.whole)
    columns = ["replica", "part", "state", "loaded", "since (UTC)", "heard", "problem"]
    show_table(columns, [_row(replica) for replica in answer.replicas])
    say_next_page(answer.next)
    for sentence in _sentences(name, answer):
        say(sentence)


def _row(replica: "ReplicaAnswer") -> list[object]:
    heard_s = (datetime.now(UTC) - datetime.fromisoformat(replica.heard_at)).total_seconds()
    return [
        replica.replica,
        replica.part,
        f"silent, was {replica.state}" if replica.silent else replica.state,
        replica.loaded,
        datetime.fromisoformat(replica.loaded_at) if replica.loaded_at else None,
        f"{max(0.0, heard_s):.0f} s ago",
        replica.problem,
    ]


def _sentences(name: str, answer: "FleetAnswer") -> Iterator[str]:
    from penstock.registry.fleet.fleet_status import describe_part

    for part in answer.parts:
        since = ""
        if part.since is not None:
            at = datetime.fromisoformat(part.since).astimezone(UTC)
            since = f", since {at:%Y-%m-%d %H:%M:%S} UTC"
        yield describe_part(name, part) + since
    canary = answer.canary
    if canary is not None and "canary" not in {part.part for part in answer.parts}:
        yield f"no replica serves the canary {canary}: none follows with --part canary"
