"""`penstock channels`: list and show channels, their history and policy, and watch them."""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.backends.audit.entry import UNSIGNED
from penstock.backends.database import DatabaseUnreachable
from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import on_end_signal
from penstock.backends.terminal.output import (
    facts,
    say,
    say_next_page,
    show_fields,
    show_json_line,
    show_rows,
    show_table,
    show_text,
)
from penstock.core.endpoint import Client, ListRequest, page_of
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import service_url
from penstock.lake.commands import Outcome, asks, command
from penstock.lake.lake import Lake, open_existing
from penstock.registry.channels.change import ChangeAnswer, ChannelState
from penstock.registry.channels.endpoints import (
    AUDIT_CHANNEL,
    LIST_CHANNELS,
    RELEASE,
    SET_POLICY,
    SHOW_CHANNEL,
    SHOW_POLICY,
    AuditRequest,
    ChannelRequest,
    ChannelsAnswer,
    SetPolicyRequest,
)
from penstock.registry.channels.promotion_cli import show_change

app = typer.Typer(
    help="Channels of the serving fleet: each points at one checkpoint.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The channel.")]

_OUTAGE_PAUSE_SECONDS = 5.0


@app.command("list")
@asks(LIST_CHANNELS)
def list_channels(page: ChannelsAnswer) -> None:
    """List all channels and the checkpoint of each.

    Example: penstock channels list
    """
    rows: list[list[object]] = []
    for channel in page.channels:
        since = datetime.fromisoformat(channel.since) if channel.since is not None else None
        canary = [channel.canary, channel.canary_share, "pinned" if channel.pinned else None]
        rows.append([channel.channel, channel.version, channel.checkpoint, since, *canary])
    columns = ["channel", "version", "checkpoint", "since (UTC)", "canary", "share", "pinned"]
    show_table(columns, rows)


@app.command()
@asks(SHOW_CHANNEL)
def show(channel: ChannelState) -> None:
    """Show the checkpoint of a channel, and the location of its files.

    Example: penstock channels show production
    """
    show_fields(msgspec.to_builtins(channel))


def _gate_text(verdict: str, outcome: str, left_out: Mapping[str, Mapping[str, list[str]]]) -> str:
    from penstock.registry.channels.change import short_digest

    without = left_out.get(verdict, {}).items()
    return f"{outcome} {short_digest(verdict)}" + "".join(
        f", without {', '.join(tasks)} of {suite}" for suite, tasks in without
    )


@app.command("history")
@command()
def show_history(
    client: Client,
    name: Name,
    *,
    last: Annotated[
        int | None,
        typer.Option(help="Show this many of the newest changes; by default all.", min=1),
    ] = None,
    cursor: options.Cursor = None,
) -> Iterator[object]:
    """Show the changes of a channel: who, when, why, and the gate's verdict. Exit 1 if the history
    was altered.

    The whole history is checked, even if only a part is shown. Each change holds the hash of the
    one before, verdicts are named by their digests, and the attempts that they read must be
    unchanged.

    Example: penstock channels history production
    """
    from penstock.registry.channels.change import HistoryDamaged, change_marks, describe_change

    audit = client.call(AUDIT_CHANNEL, AuditRequest(name=name, last=last, cursor=cursor))
    say_next_page(audit.next)
    changes, flaw = audit.changes, audit.flaw
    document = {"channel": name, "changes": changes, "flaw": flaw, "signed": audit.signed}
    damaged = flaw and HistoryDamaged(channel=name, version=flaw.number, why=flaw.why)
    left_out = {"left_out": audit.left_out} if audit.left_out else {}
    yield Outcome(document | left_out, failed=damaged or False)
    rows: list[list[object]] = []
    for before, change in zip([audit.before, *changes], changes, strict=False):
        text, outcome = describe_change(change, before), change.outcome or "?"
        gate = _gate_text(change.verdict, outcome, audit.left_out) if change.verdict else ""
        why = [change_marks(change), change.actor, change.reason]
        rows.append([change.version, datetime.fromisoformat(change.at), text, gate, *why])
    show_table(["version", "when (UTC)", "what", "gate", "marks", "who", "why"], rows)
    if flaw is None:
        newest = changes[-1] if changes and cursor is None else None
        upto = f": {newest.version} changes, up to the hash {newest.hash}" if newest else ""
        say(f"the history is {'unaltered' if audit.signed else UNSIGNED}{upto}")


@app.command()
@command(by=True, make="file")
def policy(
    client: Client,
    name: Name,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--set", parser=options.path, metavar="POLICY.toml", help="The new policy."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept for ever.")] = "",
) -> Iterator[object]:
    """Show the gate policy of a channel, or set a new one. Setting one creates the channel.

    Example: penstock channels policy production --set examples/policies/production.toml
    """
    from penstock.core.toml_document import read_text, unknown
    from penstock.registry.gate.policy import parse

    if file is None:
        policy = client.call(SHOW_POLICY, ChannelRequest(name=name))
        yield policy
        if policy.text is None:
            say(f"{name} has no policy: promotions to it need an override")
        else:
            show_text(policy.text.rstrip("\n"))
        return
    text = read_text(file)
    parse(text, str(file))
    question = SetPolicyRequest(name=name, text=text, reason=reason or f"set from {file.name}")
    change = client.call(SET_POLICY, question)
    for suite in change.unknown_suites:
        hint = f" ({unknown(suite, change.known_suites)})" if change.known_suites else ""
        say(f"there is no suite {suite} yet{hint}: until it is registered, the gate says ERROR")
    yield change
    show_change(change)


@app.command()
@asks(RELEASE, by=True)
def release(change: ChangeAnswer) -> None:
    """Allow promotions to a channel again after a rollback.

    Example: penstock channels release production --reason "found it: a bad shard, and withdrew it"
    """
    show_change(change)


@app.command()
def watch(
    name: Name,
    *,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Start after this version; by default with the newest change."),
    ] = None,
    changes: Annotated[
        int | None, typer.Option("--changes", min=1, help="Stop after this many changes.")
    ] = None,
    url: options.Url = None,
    data: options.AnyData = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Show each change of a channel as it comes, in order and without gaps, until Ctrl-C. With
    --json, print one JSON document per line.

    Example: penstock channels watch production --json
    """
    service = service_url(data, url)
    if service is not None:
        found = _from_service(service, name, after)
    else:
        found = _from_database(data, tenant, name, after)
    try:
        for change in islice(found, changes):
            show_json_line(change) if json else show_text(_watch_line(change))
    except KeyboardInterrupt:
        return


def _from_database(
    data: Path | None, tenant: str, name: str, after: int | None
) -> "Iterator[ChangeAnswer]":
    from penstock.registry.channels.channel import channel_state
    from penstock.registry.channels.channel_watcher import POLL_SECONDS
    from penstock.registry.channels.history import notices_after

    with open_existing(data) as lake:
        newest = channel_state(lake.database, tenant, name).version
        after = newest - 1 if after is None else after
        while True:
            pause_s = POLL_SECONDS
            try:
                with lake.database.read() as connection:
                    notices = notices_after(connection, tenant, name, after)
                for notice in notices:
                    after = notice.version
                    yield notice
            except DatabaseUnreachable as error:
                say(f"{error} Retrying.")
                pause_s = _OUTAGE_PAUSE_SECONDS
            time.sleep(pause_s)


def _from_service(url: str, name: str, after: int | None) -> "Iterator[ChangeAnswer]":
    from penstock.backends.http.client import service_at
    from penstock.registry.channels.channel_watcher import channel_answers, channel_path

    service = service_at(url)
    if after is None:
        after = max(0, service.ask(channel_path(name), "version")["version"] - 1)
    for answer in channel_answers(service, name, after, say, threading.Event()):
        yield from msgspec.convert(answer["changes"], list[ChangeAnswer])


def _watch_line(change: "ChangeAnswer") -> str:
    from penstock.registry.channels.change import change_marks, describe_change

    marks = f" [{change_marks(change)}]" if change_marks(change) else ""
    text = f"{describe_change(change)}{marks}  ({change.actor}: {change.reason})"
    return " ".join(f"{change.at}  {change.channel} {change.version}  {text}".split("\n"))


webhooks_app = typer.Typer(
    help="Addresses that receive the changes of channels.", no_args_is_help=True
)


@webhooks_app.command("add")
@command()
def add_webhook(
    lake: Lake,
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that receives messages.")],
    channel: Annotated[
        str | None, typer.Option(help="Send only this channel's changes; by default all.")
    ] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Send each change from now on to an address. The secret of the signatures is shown only now.

    Example: penstock webhooks add https://fleet.example.com/hooks/penstock --channel production
    """
    from penstock.registry.channels.webhooks import add_webhook, check_webhook

    check_webhook(url, lake.settings)
    by = options.actor(None)
    hook, secret = add_webhook(lake.database, lake.settings, tenant, url, channel, by=by)
    yield {"id": hook.id, "url": hook.shown, "channel": hook.channel, "secret": secret}
    say(f"webhook {hook.id} for {hook.shown}; the secret of its signatures, shown only now:")
    show_text(secret)


@webhooks_app.command("list")
@command()
def list_webhooks(
    lake: Lake,
    tenant: options.Tenant = TENANT_DEFAULT,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
) -> Iterator[object]:
    """List all webhooks with their undelivered changes and the last problem.

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


@webhooks_app.command("remove")
@command()
def remove_webhook(
    lake: Lake,
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="From `penstock webhooks list`.")],
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Remove a webhook and its undelivered changes.

    Example: penstock webhooks remove 1f0c2a9b77d04e12
    """
    from penstock.registry.channels.webhooks import remove_webhook

    remove_webhook(lake.database, tenant, webhook_id, by=options.actor(None))
    yield {"removed": webhook_id}
    say(f"webhook {webhook_id} was removed")


@webhooks_app.command()
@command()
def deliver(
    lake: Lake,
    once: Annotated[
        bool,
        typer.Option("--once", help="Try everything once, then end; exit 1 if anything is left."),
    ] = False,
) -> Iterator[object]:
    """Deliver notices of all tenants until SIGTERM or Ctrl-C. `penstock serve` does it too; only
    one process at a time delivers to an address.

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
            deliverer.deliver_now()
        else:
            with on_end_signal(ended.set):
                deliverer.start()
                say("delivering until Ctrl-C")
                ended.wait()
    finally:
        deliverer.stop()
    left = deliverer.survey()
    delivered_count = int(metrics.value("notices_delivered_total"))
    waiting = sum(pending.count for pending in left)
    document = {"delivered": delivered_count, "waiting": waiting, "problems": deliverer.problems()}
    yield Outcome(document, failed=once and bool(left))
    say(f"{delivered_count} delivered, {waiting} waiting")
    for problem in deliverer.problems():
        say(problem)
