"""`penstock channels`: where channels point, their history, their policy, and watching
them."""

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.terminal import options
from penstock.backends.terminal.output import (
    say,
    say_next_page,
    show_fields,
    show_json_line,
    show_table,
    show_text,
)
from penstock.core.endpoint import Client
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import service_url
from penstock.lake.commands import Outcome, asks, command
from penstock.lake.lake import open_existing
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
    help="What the serving fleet watches: each channel points at one checkpoint.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The channel.")]

_OUTAGE_PAUSE_SECONDS = 5.0


@app.command("list")
@asks(LIST_CHANNELS)
def list_channels(page: ChannelsAnswer) -> None:
    """All channels, and where each points.

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
    """Where a channel points, and where the files of that lie.

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
        int | None, typer.Option(help="Show so many changes, the newest; all by default.", min=1)
    ] = None,
    cursor: options.Cursor = None,
) -> Iterator[object]:
    """What happened to a channel: who changed it, when, why, and what the gate said. Exit 1 where
    the history is not as it was written.

    The whole history is checked, also where a part is shown: each change holds the hash of the
    one before, verdicts are named by their digests, and the attempts that they read have to be
    there as they were recorded.

    Example: penstock channels history production
    """
    from penstock.registry.channels.change import HistoryDamaged, change_marks, describe_change

    audit = client.call(AUDIT_CHANNEL, AuditRequest(name=name, last=last, cursor=cursor))
    say_next_page(audit.next)
    changes, misfit = audit.changes, audit.misfit
    document = {"channel": name, "changes": changes, "misfit": misfit}
    damaged = misfit and HistoryDamaged(channel=name, version=misfit.version, why=misfit.why)
    left_out = {"left_out": audit.left_out} if audit.left_out else {}
    yield Outcome(document | left_out, failed=damaged or False)
    rows: list[list[object]] = []
    for before, change in zip([audit.before, *changes], changes, strict=False):
        text, outcome = describe_change(change, before), change.outcome or "?"
        gate = _gate_text(change.verdict, outcome, audit.left_out) if change.verdict else ""
        why = [change_marks(change), change.actor, change.reason]
        rows.append([change.version, datetime.fromisoformat(change.at), text, gate, *why])
    show_table(["version", "when (UTC)", "what", "gate", "marks", "who", "why"], rows)
    if misfit is None:
        newest = changes[-1] if changes and cursor is None else None
        upto = f": {newest.version} changes, up to the hash {newest.hash}" if newest else ""
        say(f"the history fits{upto}")


@app.command()
@command(by=True, make="file")
def policy(
    client: Client,
    name: Name,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--set", parser=options.path, metavar="POLICY.toml", help="The new one."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept for ever.")] = "",
) -> Iterator[object]:
    """The gate policy of a channel, or a new one for it. Setting one makes the channel.

    Example: penstock channels policy production --set examples/policies/production.toml
    """
    from penstock.core.toml_document import read_text, unknown
    from penstock.registry.gate.policy import parse

    if file is None:
        policy = client.call(SHOW_POLICY, ChannelRequest(name=name))
        yield policy
        if policy.text is None:
            say(f"{name} has no policy: nothing can be promoted to it without an override")
        else:
            show_text(policy.text.rstrip("\n"))
        return
    text = read_text(file)
    parse(text, str(file))
    question = SetPolicyRequest(name=name, text=text, reason=reason or f"set from {file.name}")
    change = client.call(SET_POLICY, question)
    for suite in change.unknown_suites:
        hint = f" ({unknown(suite, change.known_suites)})" if change.known_suites else ""
        say(f"no suite {suite} is known yet{hint}: until it is, the gate says ERROR")
    yield change
    show_change(change)


@app.command()
@asks(RELEASE, by=True)
def release(change: ChangeAnswer) -> None:
    """Let a channel that was rolled back be promoted again.

    Example: penstock channels release production --reason "found it: a bad shard, and withdrew it"
    """
    show_change(change)


@app.command()
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
    data: options.AnyData = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Show each change of a channel as it comes, in order and none left out, until Ctrl-C. With
    --json, a JSON document a line.

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
    from penstock.registry.channels.channel_watcher import follow

    with open_existing(data) as lake:
        if after is None:
            after = channel_state(lake.database, tenant, name).version - 1
        while True:
            try:
                for notice in follow(lake.database, tenant, name, after):
                    after = notice.version
                    yield notice
            except DatabaseUnreachable as error:
                say(f"{error} It is tried again.")
                time.sleep(_OUTAGE_PAUSE_SECONDS)


def _from_service(url: str, name: str, after: int | None) -> "Iterator[ChangeAnswer]":
    import msgspec

    from penstock.backends.http.client import service_at
    from penstock.registry.channels.change import ChangeAnswer
    from penstock.registry.channels.channel_watcher import channel_answers, channel_path

    service = service_at(url)
    if after is None:
        after = max(0, service.ask(channel_path(name), "version")["version"] - 1)
    for answer in channel_answers(service, name, after, say, threading.Event()):
        yield from msgspec.convert(answer["changes"], list[ChangeAnswer])


def _watch_line(change: "ChangeAnswer") -> str:
    """A change for a person."""
    from penstock.registry.channels.change import change_marks, describe_change

    marks = f" [{change_marks(change)}]" if change_marks(change) else ""
    text = f"{describe_change(change)}{marks}  ({change.actor}: {change.reason})"
    return " ".join(f"{change.at}  {change.channel} {change.version}  {text}".split("\n"))
