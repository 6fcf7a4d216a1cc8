"""`penstock channels`: where channels point, their history, their policy, and watching them."""

import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.database.errors import DatabaseUnreachable
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing, open_or_make
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.options import By, Reason, actor
from penstock.terminal.output import encode, say, show_json, show_table, time_of

if TYPE_CHECKING:
    from penstock.channels.change import Change
    from penstock.channels.channel import ChannelState

app = typer.Typer(
    help="What the serving fleet watches: each channel points at one checkpoint.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The channel's name.")]


@app.command("list")
def list_(
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """All channels, and where each points.

    Example: penstock channels list
    """
    from penstock.channels.channel import channel_document, list_channels

    with open_existing(data) as lake:
        found = list_channels(lake.database, tenant)
    if json:
        show_json([channel_document(one) for one in found])
        return
    columns = ["channel", "version", "checkpoint", "since (UTC)", "canary", "share", "pinned"]
    show_table(columns, [_row(one) for one in found])


@app.command("show")
def show(
    name: Name,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Where a channel points, and where the files of that lie.

    Example: penstock channels show production
    """
    from penstock.channels.channel import channel_document, channel_state

    with open_existing(data) as lake:
        document = channel_document(channel_state(lake.database, tenant, name))
    if json:
        show_json(document)
    else:
        rows = [(what, value) for what, value in document.items() if value is not None]
        show_table(["what", "value"], rows)


@app.command("history")
def history(
    name: Name,
    last: Annotated[
        int | None, typer.Option(help="Show so many changes, the newest; all by default.", min=1)
    ] = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What happened to a channel: who changed it, when, why, and what the gate said. Exit 1 where
    the history is not as it was written.

    The whole history is checked, also where a part is shown: each change holds the hash of the
    one before, and verdicts are named by their digests.

    Example: penstock channels history production
    """
    from penstock.channels.errors import HistoryDamaged
    from penstock.channels.history import channel_changes, verdict_outcomes, verify_history

    with open_existing(data) as lake:
        changes = channel_changes(
            lake.database, tenant, name, limit=_with_one_before(last), latest=True
        )
        outcomes = verdict_outcomes(lake.database, tenant, name)
        misfit = verify_history(lake.database, tenant, name)
    told = list(zip([None, *changes], changes, strict=False))[-(last or len(changes)) :]
    if json:
        shown = [_told(change, outcomes) for _, change in told]
        show_json({"channel": name, "changes": shown, "misfit": misfit})
    else:
        columns = ["version", "when (UTC)", "what", "gate", "marks", "who", "why"]
        show_table(columns, [_story(before, change, outcomes) for before, change in told])
    if misfit is not None:
        raise HistoryDamaged(channel=name, version=misfit.version, why=misfit.why)
    if not json:
        say(f"the history fits: {changes[-1].version} changes, up to the hash {changes[-1].hash}")


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
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """The gate policy of a channel, or a new one for it. Setting one makes the channel.

    Example: penstock channels policy production --set examples/policies/production.toml
    """
    if file is None:
        _show_policy(name, data, tenant, json=json)
        return
    from penstock.channels import promotion
    from penstock.checkpoints.suites import suite_names
    from penstock.gate.policy import parse
    from penstock.toml_document import read_text, unknown

    text = read_text(file)
    parsed = parse(text, str(file))
    with open_or_make(load_settings(data)) as lake:
        known = suite_names(lake.database, tenant)
        change = promotion.set_policy(
            lake.database,
            tenant=tenant,
            channel=name,
            text=text,
            reason=reason or f"set from {file.name}",
            actor=actor(by),
        )
    for suite in sorted(set(parsed.suites) - set(known)):
        hint = f" ({unknown(suite, known)})" if known else ""
        say(f"no suite {suite} is known yet{hint}: until it is, the gate says ERROR")
    _show_change(change, json=json)


@app.command("release")
def release(
    name: Name,
    *,
    reason: Reason,
    by: By = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Let a channel that was rolled back be promoted again.

    Example: penstock channels release production --reason "found it: a bad shard, and withdrew it"
    """
    from penstock.channels import promotion

    with open_existing(data) as lake:
        change = promotion.release(
            lake.database, tenant=tenant, channel=name, reason=reason, actor=actor(by)
        )
    _show_change(change, json=json)


def _with_one_before(last: int | None) -> int | None:
    return last + 1 if last is not None else None


def _show_policy(name: str, data: Path | None, tenant: str, *, json: bool) -> None:
    from penstock.channels.channel import channel_state, policy_of

    with open_existing(data) as lake:
        at = channel_state(lake.database, tenant, name)
        text = policy_of(lake.database, at)
    if json:
        show_json({"channel": name, "policy": at.policy, "text": text})
    elif text is None:
        say(f"{name} has no policy: nothing can be promoted to it without an override")
    else:
        typer.echo(text.rstrip("\n"))


def _row(at: "ChannelState") -> list[object]:
    since = time_of(at.since) if at.since is not None else None
    pinned = "pinned" if at.pinned else None
    return [at.name, at.version, at.checkpoint, since, at.canary, at.canary_share, pinned]


def _told(change: "Change", outcomes: Any) -> dict[str, Any]:
    from penstock.channels.notices import change_document

    return change_document(change) | {"outcome": outcomes.get(change.verdict)}


def _story(before: "Change | None", change: "Change", outcomes: Any) -> list[object]:
    from penstock.channels.notices import change_marks, describe_change, short_digest

    gate = (
        f"{outcomes.get(change.verdict, '?')} {short_digest(change.verdict)}"
        if change.verdict
        else ""
    )
    when, what = time_of(change.at), describe_change(change, before)
    return [change.version, when, what, gate, change_marks(change), change.actor, change.reason]


def _show_change(change: "Change", *, json: bool) -> None:
    from penstock.channels.notices import change_document, describe_change

    if json:
        show_json(change_document(change))
    else:
        say(f"{change.channel} version {change.version}: {describe_change(change)}")


_PAUSE_SECONDS = 5.0


@app.command("watch")
def watch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The channel.")],
    *,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Begin after this version; without it, with the newest change."),
    ] = None,
    changes: Annotated[
        int | None, typer.Option("--changes", min=1, help="End after so many changes.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Ask this service; its key is in PENSTOCK_KEY. Else the database is asked."
        ),
    ] = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Show each change of a channel as it comes, in order and none left out, until Ctrl-C. With
    --json, a JSON document a line.

    Example: penstock channels watch production --json
    """
    if url is not None:
        found = _over_http(url, name, after)
    else:
        found = _from_database(data, tenant, name, after)
    try:
        for change in islice(found, changes):
            sys.stdout.write((encode(change).decode() if json else _line(change)) + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _from_database(
    data: Path | None, tenant: str, name: str, after: int | None
) -> Iterator[dict[str, Any]]:
    from penstock.channels.change_feed import follow
    from penstock.channels.channel import channel_state

    with open_existing(data) as lake:
        if after is None:
            after = channel_state(lake.database, tenant, name).version - 1
        while True:
            try:
                for one in follow(lake.database, tenant, name, after):
                    after = one.version
                    yield one.document
            except DatabaseUnreachable as error:
                say(f"{error} It is tried again.")
                time.sleep(_PAUSE_SECONDS)


def _over_http(url: str, name: str, after: int | None) -> Iterator[dict[str, Any]]:
    """Raises ServerUnreachable where nobody ever answered; later it tries again."""
    from penstock.channels.change_feed import channel_answers, channel_path
    from penstock.http.client import service_at

    service = service_at(url)
    if after is None:
        after = max(0, service.ask(channel_path(name), "version")["version"] - 1)
    for answer in channel_answers(service, name, after, say, Event()):
        yield from answer["changes"]


def _line(document: dict[str, Any]) -> str:
    """For a person."""
    from penstock.channels.change import Change
    from penstock.channels.notices import change_marks, describe_change

    at = round(datetime.fromisoformat(document["at"]).timestamp() * 1_000_000)
    names = [one.name for one in fields(Change)]
    change = Change(**{name: document[name] for name in names} | {"at": at})
    marks = f" [{change_marks(change)}]" if change_marks(change) else ""
    said = f"{describe_change(change)}{marks}  ({change.actor}: {change.reason})"
    return " ".join(f"{document['at']}  {change.channel} {change.version}  {said}".split("\n"))
