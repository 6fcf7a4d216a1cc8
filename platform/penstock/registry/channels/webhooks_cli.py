"""`penstock webhooks`."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import on_end_signal
from penstock.backends.terminal.output import facts, say, say_next_page, show_rows, show_text
from penstock.core.endpoint import ListRequest, page_of
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake

app = typer.Typer(help="Addresses that are told of changes of channels.", no_args_is_help=True)


@app.command("add")
@command()
def add_webhook(
    lake: Lake,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where messages are sent.")],
    channel: Annotated[
        str | None, typer.Option(help="The one channel to tell of; all without it.")
    ] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Tell an address of each change from now on. The secret of the signatures is shown now and
    never again.

    Example: penstock webhooks add https://fleet.example.com/hooks/penstock --channel production
    """
    from penstock.registry.channels.webhooks import add_webhook, check_webhook

    check_webhook(url, lake.settings)
    by = options.actor(None)
    hook, secret = add_webhook(lake.database, lake.settings, tenant, url, channel, by=by)
    yield {"id": hook.id, "url": hook.shown, "channel": hook.channel, "secret": secret}
    say(f"webhook {hook.id} for {hook.shown}; the secret of its signatures, shown this once:")
    show_text(secret)


@app.command("list")
@command()
def list_webhooks(
    lake: Lake,
    tenant: options.Tenant = TENANT_DEFAULT,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
) -> Iterator[object]:
    """All webhooks: what each has yet to be told, and why.

    Example: penstock webhooks list
    """
    from penstock.registry.channels.notice_delivery import target_statuses

    known = target_statuses(lake.database, lake.settings, tenant)
    page = ListRequest(limit=limit, cursor=cursor)
    targets, after = page_of(known, page, lambda target: target.id)
    say_next_page(after)
    yield [facts(target) for target in targets]
    rows = [replace(target, channel=target.channel or "all") for target in targets]
    titles = {"attempts": "tries", "try_at": "next try (UTC)", "problem": "problem"}
    show_rows(rows, "id", "channel", "address", "waiting", **titles)


@app.command("remove")
@command()
def remove_webhook(
    lake: Lake,
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="From `penstock webhooks list`.")],
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Tell an address nothing any more, and nothing that it still waits for.

    Example: penstock webhooks remove 1f0c2a9b77d04e12
    """
    from penstock.registry.channels.webhooks import remove_webhook

    remove_webhook(lake.database, tenant, webhook_id, by=options.actor(None))
    yield {"removed": webhook_id}
    say(f"webhook {webhook_id} is removed")


@app.command()
@command()
def deliver(
    lake: Lake,
    once: Annotated[
        bool, typer.Option("--once", help="Try all that waits once, and end; 1 when any is left.")
    ] = False,
) -> Iterator[object]:
    """Tell webhooks, of all tenants, until SIGTERM or Ctrl-C. `penstock serve` does
    it too; one of them at a time tells an address.

    Example: penstock webhooks deliver --once
    """
    from penstock.core.logs import configure_logs
    from penstock.core.metrics import Metrics
    from penstock.registry.channels.notice_delivery import Deliverer

    configure_logs(lake.settings.log_format)
    metrics = Metrics()
    deliverer = Deliverer(lake.database, lake.settings, metrics)
    ended = threading.Event()
    try:
        if once:
            deliverer.tell_now()
        else:
            with on_end_signal(ended.set):
                deliverer.start()
                say("delivering until Ctrl-C")
                ended.wait()
    finally:
        deliverer.stop()
    left = deliverer.survey()
    told_count = int(metrics.value("notices_told_total"))
    waiting = sum(pending.count for pending in left)
    document = {"told": told_count, "waiting": waiting, "problems": deliverer.problems()}
    yield Outcome(document, failed=once and bool(left))
    say(f"{told_count} told, {waiting} waiting")
    for problem in deliverer.problems():
        say(problem)
