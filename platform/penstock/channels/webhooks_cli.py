"""`penstock webhooks`."""

import signal
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table, time_of

app = typer.Typer(help="Addresses that are told of changes of channels.", no_args_is_help=True)


@app.command("add")
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where messages are sent.")],
    channel: Annotated[
        str | None, typer.Option(help="The one channel to tell of; all without it.")
    ] = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Tell an address of each change from now on. The secret of the signatures is shown now and
    never again.

    Example: penstock webhooks add https://fleet.example.com/hooks/penstock --channel production
    """
    from penstock.channels.webhooks import add_webhook

    with open_existing(data) as lake:
        made, secret = add_webhook(lake.database, tenant, url, channel)
    if json:
        show_json({"id": made.id, "url": made.shown, "channel": made.channel, "secret": secret})
        return
    say(f"webhook {made.id} for {made.shown}; the secret of its signatures, shown this once:")
    typer.echo(secret)


@app.command("list")
def list_(
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """All webhooks, and the topic: what each has yet to be told, and why.

    Example: penstock webhooks list
    """
    from penstock.channels.backlog import target_statuses

    with open_existing(data) as lake:
        found = target_statuses(lake.database, lake.settings, tenant)
    if json:
        show_json([facts(one) for one in found])
        return
    columns = ["id", "channel", "address", "waiting", "tries", "next try (UTC)", "problem"]
    show_table(
        columns,
        [
            [
                one.id,
                one.channel or "all",
                one.address,
                one.waiting,
                one.attempts,
                time_of(one.try_at) if one.try_at else None,
                one.problem,
            ]
            for one in found
        ],
    )


@app.command("remove")
def remove(
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="From `penstock webhooks list`.")],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Tell an address nothing any more, and nothing that it still waits for.

    Example: penstock webhooks remove 1f0c2a9b77d04e12
    """
    from penstock.channels.webhooks import remove_webhook

    with open_existing(data) as lake:
        remove_webhook(lake.database, tenant, webhook_id)
    show_json({"removed": webhook_id}) if json else say(f"webhook {webhook_id} is removed")


@app.command("deliver")
def deliver(
    once: Annotated[
        bool, typer.Option("--once", help="Try all that waits once, and end; 1 when any is left.")
    ] = False,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Tell webhooks and the topic, of all tenants, until SIGTERM or Ctrl-C. `penstock serve` does
    it too; one of them at a time tells an address.

    Example: penstock webhooks deliver --once
    """
    from penstock.channels.delivery import Deliverer
    from penstock.logs import configure_logs
    from penstock.metrics import Metrics

    with open_existing(data) as lake:
        configure_logs(lake.settings.log_format)
        metrics = Metrics()
        deliverer = Deliverer(lake.database, lake.settings, metrics)
        try:
            if once:
                deliverer.tell_now()
            else:
                _deliver_until_told(deliverer.start)
        finally:
            deliverer.stop()
        left = deliverer.survey()
    kinds = ("webhook", "kafka")
    told = sum(int(metrics.value("notices_told_total", kind=kind)) for kind in kinds)
    waiting = sum(one.changes for one in left)
    if json:
        show_json({"told": told, "waiting": waiting, "problems": deliverer.problems()})
    else:
        say(f"{told} told, {waiting} waiting")
        for problem in deliverer.problems():
            say(problem)
    if once and left:
        raise typer.Exit(1)


def _deliver_until_told(start: Callable[[], None]) -> None:
    ended = threading.Event()
    before = {
        one: signal.signal(one, lambda *_: ended.set()) for one in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        start()
        say("delivering until Ctrl-C")
        ended.wait()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
