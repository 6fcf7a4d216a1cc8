"""`penstock channels`: where channels point, their history, their policy, and watching them; and
`penstock webhooks`."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.channels.promotion_cli import show_change
from penstock.database.errors import DatabaseUnreachable
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import open_desk, service_url
from penstock.lake.lake import open_existing
from penstock.sealed_texts import SecretKeyUnfit
from penstock.terminal import options
from penstock.terminal.long_commands import on_end_signal
from penstock.terminal.options import By, Reason
from penstock.terminal.output import (
    facts,
    say,
    show_json,
    show_json_line,
    show_table,
    show_text,
    time_of,
)

if TYPE_CHECKING:
    from penstock.channels.calls import AuditedChange
    from penstock.channels.change import Change

app = typer.Typer(
    help="What the serving fleet watches: each channel points at one checkpoint.",
    no_args_is_help=True,
)
webhooks = typer.Typer(help="Addresses that are told of changes of channels.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The channel.")]

_OUTAGE_PAUSE_SECONDS = 5.0


@app.command("list")
def list_channels(
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """All channels, and where each points.

    Example: penstock channels list
    """
    from penstock.channels.calls import LIST_CHANNELS, ChannelsQuestion

    with open_desk(data, url, tenant) as desk:
        channels = desk.ask(LIST_CHANNELS, ChannelsQuestion()).channels
    if json:
        show_json(channels)
        return
    rows: list[list[object]] = []
    for channel in channels:
        since = datetime.fromisoformat(channel.since) if channel.since is not None else None
        canary = [channel.canary, channel.canary_share, "pinned" if channel.pinned else None]
        rows.append([channel.channel, channel.version, channel.checkpoint, since, *canary])
    columns = ["channel", "version", "checkpoint", "since (UTC)", "canary", "share", "pinned"]
    show_table(columns, rows)


@app.command("show")
def show(
    name: Name,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Where a channel points, and where the files of that lie.

    Example: penstock channels show production
    """
    import msgspec

    from penstock.channels.calls import SHOW_CHANNEL, ChannelQuestion

    with open_desk(data, url, tenant) as desk:
        answer = desk.ask(SHOW_CHANNEL, ChannelQuestion(name=name))
    document: dict[str, Any] = msgspec.to_builtins(answer)
    if json:
        show_json(document)
    else:
        rows = [(field, value) for field, value in document.items() if value is not None]
        show_table(["what", "value"], rows)


def _gate_text(verdict: str, outcome: str, left_out: Mapping[str, Mapping[str, list[str]]]) -> str:
    from penstock.channels.change import short_digest

    without = left_out.get(verdict, {}).items()
    return f"{outcome} {short_digest(verdict)}" + "".join(
        f", without {', '.join(tasks)} of {suite}" for suite, tasks in without
    )


@app.command("history")
def show_history(
    name: Name,
    *,
    last: Annotated[
        int | None, typer.Option(help="Show so many changes, the newest; all by default.", min=1)
    ] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What happened to a channel: who changed it, when, why, and what the gate said. Exit 1 where
    the history is not as it was written.

    The whole history is checked, also where a part is shown: each change holds the hash of the
    one before, verdicts are named by their digests, and the attempts that they read have to be
    there as they were recorded.

    Example: penstock channels history production
    """
    from penstock.channels.calls import AUDIT_CHANNEL, AuditQuestion
    from penstock.channels.change import change_marks, describe_change
    from penstock.channels.errors import HistoryDamaged

    with open_desk(data, url, tenant) as desk:
        audit = desk.ask(AUDIT_CHANNEL, AuditQuestion(name=name, last=last))
    changes, misfit, unbound = audit.changes, audit.misfit, audit.unbound
    if json:
        past = {"channel": name, "changes": changes, "misfit": misfit, "unbound": unbound}
        show_json(past | ({"left_out": audit.left_out} if audit.left_out else {}))
    else:
        rows: list[list[object]] = []
        for before, entry in zip([audit.before, *changes], changes, strict=False):
            change = _change_of(entry)
            text = describe_change(change, _change_of(before) if before else None)
            outcome = entry.outcome or "?"
            gate = _gate_text(entry.verdict, outcome, audit.left_out) if entry.verdict else ""
            why = [change_marks(change), change.actor, change.reason]
            rows.append([change.version, datetime.fromisoformat(entry.at), text, gate, *why])
        show_table(["version", "when (UTC)", "what", "gate", "marks", "who", "why"], rows)
    if misfit is not None:
        raise HistoryDamaged(channel=name, version=misfit.version, why=misfit.why)
    if not json and unbound:
        versions = ", ".join(map(str, unbound[:10])) + ("…" if unbound[10:] else "")
        say(f"made before evidence was bound, so nobody checks their attempts: versions {versions}")
    if not json:
        say(f"the history fits: {changes[-1].version} changes, up to the hash {changes[-1].hash}")


def _change_of(entry: "AuditedChange") -> "Change":
    """For describing it: its time is not read."""
    import msgspec

    from penstock.channels.change import Change

    return msgspec.convert(msgspec.to_builtins(entry) | {"at": 0}, Change)


@app.command("policy")
def policy(
    name: Name,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--set", parser=options.path, metavar="POLICY.toml", help="The new one."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept for ever.")] = "",
    by: By = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """The gate policy of a channel, or a new one for it. Setting one makes the channel.

    Example: penstock channels policy production --set examples/policies/production.toml
    """
    if file is None:
        _show_policy(name, data, url, tenant, json=json)
        return
    from penstock.channels.calls import SET_POLICY, SetPolicyQuestion
    from penstock.gate.policy import parse
    from penstock.toml_document import read_text, unknown

    text = read_text(file)
    parse(text, str(file))
    question = SetPolicyQuestion(name=name, text=text, reason=reason or f"set from {file.name}")
    with open_desk(data, url, tenant, by=by, make=True) as desk:
        change = desk.ask(SET_POLICY, question)
    for suite in change.unknown_suites:
        hint = f" ({unknown(suite, change.known_suites)})" if change.known_suites else ""
        say(f"no suite {suite} is known yet{hint}: until it is, the gate says ERROR")
    show_change(change, json=json)


def _show_policy(name: str, data: Path | None, url: str | None, tenant: str, *, json: bool) -> None:
    from penstock.channels.calls import SHOW_POLICY, ChannelQuestion

    with open_desk(data, url, tenant) as desk:
        policy = desk.ask(SHOW_POLICY, ChannelQuestion(name=name))
    if json:
        show_json(policy)
    elif policy.text is None:
        say(f"{name} has no policy: nothing can be promoted to it without an override")
    else:
        show_text(policy.text.rstrip("\n"))


@app.command("release")
def release(
    name: Name,
    *,
    reason: Reason,
    by: By = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Let a channel that was rolled back be promoted again.

    Example: penstock channels release production --reason "found it: a bad shard, and withdrew it"
    """
    from penstock.channels.promotion_calls import RELEASE, ReleaseQuestion

    with open_desk(data, url, tenant, by=by) as desk:
        change = desk.ask(RELEASE, ReleaseQuestion(name=name, reason=reason))
    show_change(change, json=json)


@app.command("watch")
def watch(
    name: Name,
    *,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Begin after this version; without it, with the newest change."),
    ] = None,
    changes: Annotated[
        int | None, typer.Option("--changes", min=1, help="End after so many changes.")
    ] = None,
    url: options.Url = None,
    data: options.DeskData = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Show each change of a channel as it comes, in order and none left out, until Ctrl-C. With
    --json, a JSON document a line.

    Example: penstock channels watch production --json
    """
    service = service_url(data, url)
    if service is not None:
        documents = _from_service(service, name, after)
    else:
        documents = _from_database(data, tenant, name, after)
    try:
        for document in islice(documents, changes):
            show_json_line(document) if json else show_text(_watch_line(document))
    except KeyboardInterrupt:
        return


def _from_database(
    data: Path | None, tenant: str, name: str, after: int | None
) -> Iterator[dict[str, Any]]:
    from penstock.channels.channel import channel_state
    from penstock.channels.channel_watcher import follow

    with open_existing(data) as lake:
        if after is None:
            after = channel_state(lake.database, tenant, name).version - 1
        while True:
            try:
                for notice in follow(lake.database, tenant, name, after):
                    after = notice.version
                    yield notice.document
            except DatabaseUnreachable as error:
                say(f"{error} It is tried again.")
                time.sleep(_OUTAGE_PAUSE_SECONDS)


def _from_service(url: str, name: str, after: int | None) -> Iterator[dict[str, Any]]:
    """Raises ServerUnreachable where nobody ever answered; later it tries again."""
    from penstock.channels.channel_watcher import channel_answers, channel_path
    from penstock.http.client import service_at

    service = service_at(url)
    if after is None:
        after = max(0, service.ask(channel_path(name), "version")["version"] - 1)
    for answer in channel_answers(service, name, after, say, threading.Event()):
        yield from answer["changes"]


def _watch_line(document: dict[str, Any]) -> str:
    """A change for a person."""
    import msgspec

    from penstock.channels.change import Change, change_marks, describe_change

    change = msgspec.convert(document | {"at": 0}, Change)
    marks = f" [{change_marks(change)}]" if change_marks(change) else ""
    text = f"{describe_change(change)}{marks}  ({change.actor}: {change.reason})"
    return " ".join(f"{document['at']}  {change.channel} {change.version}  {text}".split("\n"))


@webhooks.command("add")
def add_webhook(
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
    from penstock.channels.webhooks import add_webhook, check_webhook, seal_webhooks

    with open_existing(data) as lake:
        check_webhook(url, lake.settings)
        seal_webhooks(lake.database, lake.settings)
        by = options.actor(None)
        hook, secret = add_webhook(lake.database, lake.settings, tenant, url, channel, by=by)
    if json:
        show_json({"id": hook.id, "url": hook.shown, "channel": hook.channel, "secret": secret})
        return
    say(f"webhook {hook.id} for {hook.shown}; the secret of its signatures, shown this once:")
    show_text(secret)


@webhooks.command("list")
def list_webhooks(
    data: options.Data = None, tenant: options.Tenant = TENANT_DEFAULT, json: options.Json = False
) -> None:
    """All webhooks, and the topic: what each has yet to be told, and why.

    Example: penstock webhooks list
    """
    from penstock.channels.notice_delivery import target_statuses
    from penstock.channels.webhooks import seal_webhooks

    with open_existing(data) as lake:
        with suppress(SecretKeyUnfit):  # the list says which webhooks cannot be read
            seal_webhooks(lake.database, lake.settings)
        targets = target_statuses(lake.database, lake.settings, tenant)
    documents = [facts(target) for target in targets]
    if json:
        show_json(documents)
        return
    columns = ["id", "channel", "address", "waiting", "tries", "next try (UTC)", "problem"]
    rows = []
    for target, document in zip(targets, documents, strict=True):
        document["channel"] = target.channel or "all"
        document["try_at"] = time_of(target.try_at) if target.try_at else None
        rows.append(list(document.values()))
    show_table(columns, rows)


@webhooks.command("remove")
def remove_webhook(
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
        remove_webhook(lake.database, tenant, webhook_id, by=options.actor(None))
    show_json({"removed": webhook_id}) if json else say(f"webhook {webhook_id} is removed")


@webhooks.command("deliver")
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
    from penstock.channels.notice_delivery import Deliverer
    from penstock.logs import configure_logs
    from penstock.metrics import Metrics

    with open_existing(data) as lake:
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
    kinds = ("webhook", "kafka")
    told_count = sum(int(metrics.value("notices_told_total", kind=kind)) for kind in kinds)
    waiting = sum(pending.count for pending in left)
    if json:
        show_json({"told": told_count, "waiting": waiting, "problems": deliverer.problems()})
    else:
        say(f"{told_count} told, {waiting} waiting")
        for problem in deliverer.problems():
            say(problem)
    if once and left:
        raise typer.Exit(1)
