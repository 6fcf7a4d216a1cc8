"""`penstock promote`, `penstock rollback`, `penstock gate check`, which tries a promotion, and
`penstock checkpoints lineage`, which also says what a checkpoint serves."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.options import By, CheckpointName, Reason, actor
from penstock.terminal.output import facts, say, show_json, show_table, show_text, time_of

if TYPE_CHECKING:
    from penstock.channels.change import Change
    from penstock.channels.channel import Expected, ServingChannel
    from penstock.checkpoints.lineage import Lineage
    from penstock.database.engine import Database
    from penstock.gate.frontier import FrontierPicture
    from penstock.gate.verdict import Verdict

CHANNEL_DEFAULT = "production"

Channel = Annotated[str, typer.Option("--channel", help="What the serving fleet watches.")]
_Key = Annotated[
    str | None, typer.Option("--key", envvar="PENSTOCK_KEY", show_envvar=True, help="An admin key.")
]


def promote(
    checkpoint: CheckpointName,
    *,
    reason: Reason,
    channel: Channel = CHANNEL_DEFAULT,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="CURRENT",
            help="Only if the channel points at this checkpoint; `none`: at nothing yet. By "
            "default the one it points at when the command begins.",
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Try it as a canary on this part of the traffic, such as 0.05."),
    ] = None,
    override: Annotated[
        bool,
        typer.Option("--override", help="Without a PASS; takes an admin key, is marked for ever."),
    ] = False,
    key: _Key = None,
    by: By = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Point a channel at a checkpoint that passes the gate. Exit 1 where it does not.

    The gate is asked anew each time. A channel that changed meanwhile is left as it is.

    Example: penstock promote ckpt-0012 --expect ckpt-0011 --reason "better on core, as cheap"
    """
    from penstock.channels.channel_verdict import gate_judge
    from penstock.channels.promotion import Promotion, promote
    from penstock.gate.errors import GateRefused

    with open_existing(data) as lake:
        database = lake.database
        if override:
            _check_override(database, tenant, key)
        promotion = Promotion(
            tenant=tenant,
            channel=channel,
            checkpoint=checkpoint,
            reason=reason,
            actor=actor(by),
            expect=_expected(expect),
            share=share,
            override=override,
        )
        try:
            change = promote(database, promotion, gate_judge(database, tenant, share))
        except GateRefused as refused:
            _show_verdict(refused.verdict, json=json)
            raise
    show_change(change, json=json)


def rollback(
    *,
    reason: Reason,
    channel: Channel = CHANNEL_DEFAULT,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="One that served on the channel, or a parent of the present one. By default the "
            "last good one, or the present one without its canary.",
        ),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="CURRENT", help="Only if the channel points at this checkpoint."),
    ] = None,
    by: By = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Take a channel back to the last good checkpoint, and pin it there. The gate is not asked.

    A promotion that is under way fails, and so do later ones until a person releases the channel:
    `penstock channels release`.

    Example: penstock rollback --reason "it undoes edits that nobody asked about"
    """
    from penstock.channels.history import channel_changes
    from penstock.channels.rollback import Rollback, roll_back

    order = Rollback(
        tenant=tenant,
        channel=channel,
        reason=reason,
        actor=actor(by),
        to=to,
        expect=_expected(expect),
    )
    with open_existing(data) as lake:
        change = roll_back(lake.database, order)
        after = change.version - 2
        [before] = channel_changes(lake.database, tenant, channel, after=after, limit=1)
    show_change(change, before, json=json)
    if not json:
        say(f"{channel} is pinned: `penstock channels release {channel}` lets it be promoted again")


def check(
    checkpoint: CheckpointName,
    *,
    channel: Annotated[str, typer.Option(help="Whose policy and incumbent.")] = CHANNEL_DEFAULT,
    canary: Annotated[
        bool, typer.Option("--canary", help="For a part of the traffic: live metrics come later.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", parser=options.path, metavar="FILE", help="Keep the document here, as JSON."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            parser=options.path,
            metavar="FILE.html",
            help="Draw quality against cost here; needs penstock[plots].",
        ),
    ] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """What the gate says of a checkpoint, with its evidence. Exit 0 on PASS alone, else 1.

    Example: penstock gate check ckpt-0013 --channel production
    """
    from penstock.channels.channel_verdict import judge
    from penstock.gate.frontier import draw_html, draw_text

    with open_existing(data) as lake:
        verdict = judge(lake.database, tenant, channel, checkpoint, full=not canary)
        pictures = _pictures(lake.database, tenant, verdict)
    if out is not None:
        _write(out, verdict.text + "\n")
    if plot is not None:
        title = f"{verdict.checkpoint} for {channel}: {verdict.outcome}"
        _write(plot, draw_html(pictures, title))
    _show_verdict(verdict, json=json)
    if not json:
        for picture in pictures:
            show_text("", draw_text(picture))
    if verdict.outcome != "PASS":
        raise typer.Exit(1)


def lineage(
    name: CheckpointName,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What a checkpoint came from and what came of it: parents, children, the shards that trained
    it and its parents, and the sessions in them that should not be there any more.

    Example: penstock checkpoints lineage ckpt-0012
    """
    from penstock.channels.channel import serving_channels
    from penstock.checkpoints.lineage import lineage

    with open_existing(data) as lake:
        line = lineage(lake.database, tenant, name)
        channels = serving_channels(lake.database, tenant, line.checkpoint.name)
    if json:
        moves = [facts(move) | {"at": time_of(move.at).isoformat()} for move in line.moves]
        show_json(
            {
                "checkpoint": facts(line.checkpoint),
                "parents": [facts(parent) for parent in line.parents],
                "children": line.children,
                "shards": line.shards,
                "marks": [facts(mark) for mark in line.marks],
                "channels": channels,
                "moves": moves,
            }
        )
        return
    show_table(["what", "which", "more"], _lineage_rows(line, channels))
    if line.marks:
        sessions = len({mark.session_id for mark in line.marks})
        shards = len({mark.shard for mark in line.marks})
        say(f"trained on {sessions} sessions, in {shards} shards, that should be there no more")


def _expected(text: str | None) -> "Expected":
    from penstock.channels.channel import ANY

    if text is None:
        return ANY
    return None if text == "none" else text


def _check_override(database: "Database", tenant: str, key: str | None) -> None:
    """An override takes an admin key of the tenant. While there is no key at all, whoever has the
    database is the admin. Raises OverrideRefused."""
    from penstock.access.errors import KeyRefused
    from penstock.access.keys import KeyRing, list_keys
    from penstock.channels.errors import OverrideRefused
    from penstock.clock import SystemClock

    if not list_keys(database):
        return
    if not key:
        raise OverrideRefused(why="name one with --key or PENSTOCK_KEY")
    ring = KeyRing(database, SystemClock())
    ring.refresh()
    try:
        grant = ring.grant(f"Bearer {key}")
    except KeyRefused as error:
        raise OverrideRefused(why="the key is not known here, or was revoked") from error
    if grant.role != "admin" or grant.tenant != tenant:
        raise OverrideRefused(why=f"the key is {grant.role} of the tenant {grant.tenant}")


def _show_verdict(verdict: "Verdict", *, json: bool) -> None:
    from penstock.gate.cli import show_verdict

    if json:
        show_json({"outcome": verdict.outcome, "id": verdict.id, "verdict": verdict.document})
    else:
        show_verdict(verdict)


def show_change(change: "Change", before: "Change | None" = None, *, json: bool) -> None:
    from penstock.channels.change import change_document, describe_change

    if json:
        show_json(change_document(change))
        return
    say(f"{change.channel} version {change.version}: {describe_change(change, before)}")
    if change.overridden:
        say("it went past the gate, and is marked so for ever")


def _pictures(database: "Database", tenant: str, verdict: "Verdict") -> "list[FrontierPicture]":
    from penstock.gate.frontier import frontier_picture

    marks = {verdict.checkpoint: "candidate"}
    if incumbent := verdict.document.get("incumbent"):
        marks[incumbent["name"]] = "incumbent"
    suites: dict[str, Any] = verdict.document.get("suites") or {}
    return [
        picture
        for name, suite in suites.items()
        if suite["version"] is not None
        and (picture := frontier_picture(database, tenant, name, suite["version"], marks))
    ]


def _write(path: Path, content: str) -> None:
    from penstock.errors import InvalidInput

    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(what=str(path), why=error.strerror or str(error)) from error
    say(f"wrote {path}")


def _lineage_rows(line: "Lineage", channels: "list[ServingChannel]") -> Iterator[list[object]]:
    subject = line.checkpoint
    yield ["checkpoint", subject.name, f"{subject.form}, {subject.state}"]
    for parent in line.parents:
        yield ["parent", parent.name, f"{parent.form}, {parent.state}"]
    for child in line.children:
        yield ["child", child, None]
    for channel in channels:
        yield ["serves", channel.channel, channel.arm]
    for shard in line.shards:
        yield ["shard", shard.name or shard.shard, f"of {shard.checkpoint}, {shard.shard}"]
    for mark in line.marks:
        yield ["marked", mark.session_id, f"{mark.reason}, in {mark.shard} of {mark.checkpoint}"]
