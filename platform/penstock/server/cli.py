"""`penstock serve`."""

import ipaddress
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.access.keys import create_first_key, list_keys
from penstock.lake.lake import Lake, open_or_make
from penstock.logs import configure_logs
from penstock.server.app import make_app
from penstock.server.run import bind, keep_memory, run
from penstock.server.service import ServerRole, Service
from penstock.settings import load_settings
from penstock.storage.errors import StoreUnreachable
from penstock.terminal import options
from penstock.terminal.output import encode, say


def serve(
    data: options.Data = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65_535)
    ] = 8787,
    role: Annotated[
        ServerRole, typer.Option(help="Which part to run; all of them by default.")
    ] = "all",
    json: options.Json = False,
) -> None:
    """Take events in and answer queries, until SIGTERM or Ctrl-C.

    Example: penstock serve --data penstock-data
    """
    keep_memory()
    settings = load_settings(data)
    configure_logs(settings.log_format)
    lake = open_or_make(settings)
    _check_store(lake, role)
    lake.close()
    bound = bind(host, port)
    service = Service(settings, role)
    service.start()
    key = _first_key(service.lake, host)
    _greet(_url(bound.getsockname()), key, settings.data, json=json)
    came_up = run(make_app(service), bound, settings, service.end_soon)
    if not service.ended:
        # What is under way cannot be waited for and cannot be lost: it is in the event log.
        sys.stderr.flush()
        os._exit(0)
    if not came_up:
        raise typer.Exit(1)


def _check_store(lake: Lake, role: ServerRole) -> None:
    """Raises StoreRefused; StoreUnreachable too, but a gateway takes events in without a store."""
    try:
        lake.store.check()
    except StoreUnreachable as error:
        if role != "gateway":
            raise
        say(str(error))


def _first_key(lake: Lake, host: str) -> str | None:
    """An admin key for whoever starts the service on their own machine for the first time."""
    if not _is_loopback(host):
        if not list_keys(lake.database):
            say("There is no key yet, and none is made on a public address: penstock keys create")
        return None
    made = create_first_key(lake.database, "made at the first start")
    return made[1] if made else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _url(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _greet(url: str, key: str | None, data: Path, *, json: bool) -> None:
    if json:
        typer.echo(encode({"url": url, "key": key, "data": str(data)}).decode())
        return
    typer.echo(f"Penstock listens on {url}, with its data in {data}")
    if key:
        typer.echo(f"Admin key, shown this once: {key}")
