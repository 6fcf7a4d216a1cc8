"""`penstock serve`."""

from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import show_rows
from penstock.core.settings import load_settings, resolve
from penstock.doors.settings import ServerRole
from penstock.lake.commands import command


def serve(
    data: options.Data = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: PENSTOCK_HOST, 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen on, 0 for a free one. Default: PENSTOCK_PORT, 8787.",
            min=0,
            max=65_535,
        ),
    ] = None,
    role: Annotated[ServerRole, typer.Option(help="Part of the service to run.")] = "all",
    *,
    tls_cert: Annotated[
        str | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate chain."),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="Private key of --tls-cert.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Take events in and answer queries, until SIGTERM or Ctrl-C.

    Example: penstock serve --data penstock-data
    """
    from penstock.doors.server.http_server import run_server

    flags = {"host": host, "port": port}
    flags |= {"tls_certificate_file": tls_cert, "tls_key_file": tls_key}
    run_server(load_settings(data, flags=flags), role, json=json)


@command()
def config(data: options.Data = None) -> Iterator[object]:
    """Show every setting, its value and its origin.

    Example: penstock config
    """
    settings = resolve(data)
    yield {each.name: {"value": each.shown, "origin": each.origin} for each in settings}
    titles = {"variable": "setting", "shown": "value"}
    show_rows(settings, **titles | {"origin": "origin", "meaning": "meaning"})
