"""`penstock channels fleet`."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.fleet.follow_cli import Url
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table

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
        from penstock.fleet.service import Service, channel_path

        service = Service(url)
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
    from penstock.fleet.fleet import say_standing
    from penstock.fleet.service import standing_of

    for part in found["parts"]:
        yield say_standing(name, standing_of(part)) + _since(part["since"])
    if found["canary"] is not None and "canary" not in {one["part"] for one in found["parts"]}:
        yield f"nobody serves the canary {found['canary']}: no replica follows with --part canary"


def _since(text: str | None) -> str:
    if text is None:
        return ""
    return f", since {datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
