"""`penstock channels follow` and `penstock channels fleet`."""

import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.fleet.fleet_status import PartName
from penstock.lake.lake import open_existing
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.output import encode, say, show_json, show_table

if TYPE_CHECKING:
    from penstock.fleet.registry_source import Source
    from penstock.fleet.sidecar import Sidecar

Url = Annotated[
    str | None,
    typer.Option(help="Ask this service; its key is in PENSTOCK_KEY. Else the database is asked."),
]


Name = Annotated[str, typer.Argument(metavar="NAME", help="The channel.")]
Execute = Annotated[
    str,
    typer.Option("--exec", metavar="COMMAND", help="Loads a checkpoint into the engine."),
]
Check = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND", help="Ends with 0 while the engine has it; else it is loaded again."
    ),
]
Replica = Annotated[
    str,
    typer.Option(
        default_factory=socket.gethostname,
        show_default="the host's name",
        help="What this engine is called; each has a name of its own.",
    ),
]
Part = Annotated[PartName, typer.Option(help="Follow the canary's checkpoint while there is one.")]
Into = Annotated[
    Path | None,
    typer.Option(
        parser=options.path,
        metavar="DIR",
        help="Where copies are kept; else serving/NAME in the data directory.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Load what the channel is at, and end.")]
AssumeLoaded = Annotated[
    bool,
    typer.Option(
        "--assume-loaded", help="At the start the engine has what was loaded into it last."
    ),
]


def follow(
    name: Name,
    *,
    execute: Execute,
    check: Check = None,
    url: Url = None,
    replica: Replica,
    part: Part = "main",
    into: Into = None,
    once: Once = False,
    assume_loaded: AssumeLoaded = False,
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
    from penstock.checkpoints.checkpoint import check_name
    from penstock.fleet import sidecar as serving
    from penstock.fleet.copies import locked

    for option, command in (("--exec", execute), ("--check", check)):
        if command is not None and not command.strip():
            raise InvalidInput(what=option, why="it names no command")
    settings = load_settings(data)
    plan = serving.SidecarPlan(
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
        from penstock.fleet.registry_source import ServiceSource

        yield ServiceSource(url, name)
        return
    from penstock.channels.channel import channel_state
    from penstock.fleet.registry_source import DatabaseSource

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


_LOOK_SECONDS = 0.5

#: The answer to `GET /v1/channels/{name}/replicas`.
Fleet = dict[str, Any]


def fleet(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The channel.")],
    *,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Wait so long until the fleet is whole."),
    ] = 0.0,
    url: Url = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Who serves a channel, and what each replica has loaded. Exit 1 unless all of them have loaded
    what the channel is at.

    Example: penstock channels fleet production --wait 600
    """
    with _looking(url, data, tenant, name) as look:
        found = _when_whole(look, wait)
    if json:
        show_json(found)
    else:
        columns = ["replica", "part", "state", "loaded", "since (UTC)", "heard", "problem"]
        show_table(columns, [_row(one) for one in found["replicas"]])
        for sentence in _sentences(name, found):
            say(sentence)
    if not found["whole"]:
        raise typer.Exit(1)


@contextmanager
def _looking(
    url: str | None, data: Path | None, tenant: str, name: str
) -> Iterator[Callable[[], Fleet]]:
    if url is not None:
        from penstock.http.client import ServiceClient, channel_path

        service = ServiceClient(url)
        yield lambda: service.ask(f"{channel_path(name)}/replicas", "parts")
        return
    import msgspec

    from penstock.fleet import replicas
    from penstock.fleet.documents import fleet_answer

    with open_existing(data) as lake:

        def look() -> Fleet:
            found = replicas.fleet(lake.database, lake.settings, tenant, name)
            document: Fleet = msgspec.to_builtins(fleet_answer(found))
            return document

        yield look


def _when_whole(look: Callable[[], Fleet], within_s: float) -> Fleet:
    """As soon as it is, or as it is when the time is over."""
    until = time.monotonic() + within_s
    while True:
        found = look()
        left_s = until - time.monotonic()
        if found["whole"] or left_s <= 0:
            return found
        time.sleep(min(_LOOK_SECONDS, left_s))


def _row(one: dict[str, Any]) -> list[object]:
    heard_s = (datetime.now(UTC) - datetime.fromisoformat(one["heard_at"])).total_seconds()
    state = f"silent, was {one['state']}" if one["silent"] else one["state"]
    loaded_at = datetime.fromisoformat(one["loaded_at"]) if one["loaded_at"] else None
    heard = f"{max(0.0, heard_s):.0f} s ago"
    return [one["replica"], one["part"], state, one["loaded"], loaded_at, heard, one["problem"]]


def _sentences(name: str, found: Fleet) -> Iterator[str]:
    from penstock.fleet.fleet_status import say_standing
    from penstock.fleet.registry_source import standing_of

    for part in found["parts"]:
        yield say_standing(name, standing_of(part)) + _since(part["since"])
    if found["canary"] is not None and "canary" not in {one["part"] for one in found["parts"]}:
        yield f"nobody serves the canary {found['canary']}: no replica follows with --part canary"


def _since(text: str | None) -> str:
    if text is None:
        return ""
    return f", since {datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
