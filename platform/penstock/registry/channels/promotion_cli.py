"""`penstock promote`, `penstock rollback`, `penstock gate check` and `approve`, and `penstock
checkpoints lineage`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.audit.entry import UNSIGNED
from penstock.backends.terminal.options import CheckpointName, Reason
from penstock.backends.terminal.output import say, show_table
from penstock.core.endpoint import Client
from penstock.lake.commands import Outcome, command
from penstock.registry.channels.change import CHANNEL_DEFAULT, ChangeAnswer, describe_change
from penstock.registry.checkpoints.endpoints import CheckpointRequest
from penstock.registry.gate.cli import show_verdict

if TYPE_CHECKING:
    from penstock.registry.channels.channel import Expected
    from penstock.registry.channels.promotion_endpoints import LineageAnswer


Channel = Annotated[str, typer.Option("--channel", help="The channel.")]
_Key = Annotated[
    str | None, typer.Option("--key", envvar="PENSTOCK_KEY", show_envvar=True, help="An admin key.")
]


@command(by=True)
def promote(
    client: Client,
    checkpoint: CheckpointName,
    *,
    reason: Reason,
    channel: Channel = CHANNEL_DEFAULT,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="CURRENT",
            help="Promote only if the channel points at this checkpoint; `none`: at no checkpoint. "
            "By default the one that it points at when the command starts.",
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Make it a canary with this share of the traffic, such as 0.05."),
    ] = None,
    override: Annotated[
        bool,
        typer.Option(
            "--override", help="Promote without a PASS. Needs an admin key; the history shows it."
        ),
    ] = False,
    key: _Key = None,
) -> Iterator[object]:
    """Point a channel at a checkpoint that passes the gate. Exit 1 if it does not pass.

    The gate decides anew each time. If the channel changes meanwhile, nothing is promoted.

    Example: penstock promote ckpt-0012 --expect ckpt-0011 --reason "better on core, as cheap"
    """
    from penstock.registry.channels.promotion_endpoints import PROMOTE, PromoteRequest
    from penstock.registry.gate.verdict import GateRefused

    question = PromoteRequest(
        name=channel,
        checkpoint=checkpoint,
        reason=reason,
        expect=_expected(expect),
        share=share,
        override=override,
    )
    try:
        change = client.call(PROMOTE, question)
    except GateRefused as refused:
        fields = refused.http_fields
        verdict = {"outcome": fields["outcome"], "id": fields["verdict_id"]}
        yield Outcome(verdict | {"verdict": fields["verdict"]}, failed=refused)
        show_verdict(verdict["outcome"], verdict["id"], fields["verdict"])
        return
    yield change
    show_change(change)
    if not change.signed:
        say(f"the evidence is {UNSIGNED}")


@command(by=True)
def rollback(
    client: Client,
    *,
    reason: Reason,
    channel: Channel = CHANNEL_DEFAULT,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="A checkpoint that served on the channel, or a parent of the present one. By "
            "default the last good one, or the present one without its canary.",
        ),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="CURRENT", help="Roll back only if the channel points at CURRENT."),
    ] = None,
) -> Iterator[object]:
    """Roll a channel back to the last good checkpoint, and pin it there. The gate is not asked.

    Promotions fail until a person runs `penstock channels release`, including one in progress.

    Example: penstock rollback --reason "it undoes edits that nobody asked about"
    """
    from penstock.registry.channels.promotion_endpoints import ROLL_BACK, RollbackRequest

    question = RollbackRequest(name=channel, reason=reason, to=to, expect=_expected(expect))
    change = client.call(ROLL_BACK, question)
    yield change
    show_change(change, replace(change, checkpoint=change.left, canary=change.left_canary))
    say(f"{channel} is pinned: `penstock channels release {channel}` allows promotions again")


@command()
def check(
    client: Client,
    checkpoint: CheckpointName,
    *,
    channel: Annotated[
        str, typer.Option(help="The channel whose policy and incumbent apply.")
    ] = CHANNEL_DEFAULT,
    canary: Annotated[
        bool, typer.Option("--canary", help="Judge it as a canary, without live metrics.")
    ] = False,
) -> Iterator[object]:
    """Show the gate's verdict on a checkpoint, with its evidence. Exit 0 only on PASS.

    Example: penstock gate check ckpt-0013 --channel production
    """
    from penstock.registry.channels.promotion_endpoints import ASK_GATE, VerdictRequest

    question = VerdictRequest(name=channel, checkpoint=checkpoint, canary=canary)
    verdict = client.call(ASK_GATE, question)
    yield Outcome(verdict, failed=verdict.outcome != "PASS")
    show_verdict(verdict.outcome, verdict.id, verdict.verdict)


@command(by=True)
def approve(
    client: Client, checkpoint: CheckpointName, reason: Reason, channel: Channel = CHANNEL_DEFAULT
) -> Iterator[object]:
    """Approve a checkpoint, if the channel's policy requires approvals ([approval]).

    Example: penstock gate approve ckpt-0013 --reason "read twenty of its sessions"
    """
    from penstock.registry.channels.promotion_endpoints import APPROVE, ApproveRequest

    question = ApproveRequest(name=channel, checkpoint=checkpoint, reason=reason)
    given = client.call(APPROVE, question)
    yield given
    say(f"{given.actor} approved {given.checkpoint} for {given.channel}")


@command()
def lineage(client: Client, name: CheckpointName) -> Iterator[object]:
    """Show the parents and children of a checkpoint, the shards it was trained on, and sessions in
    them that were erased or lost their consent.

    Example: penstock checkpoints lineage ckpt-0012
    """
    from penstock.registry.channels.promotion_endpoints import TRACE_CHECKPOINT

    line = client.call(TRACE_CHECKPOINT, CheckpointRequest(name=name))
    yield line
    show_table(["what", "which", "more"], _lineage_rows(line))
    if line.marks:
        sessions = len({mark.session_id for mark in line.marks})
        shards = len({mark.shard for mark in line.marks})
        say(f"{sessions} sessions in {shards} shards were erased or lost consent after training")


def _expected(text: str | None) -> "Expected":
    from penstock.registry.channels.channel import ANY

    if text is None:
        return ANY
    return None if text == "none" else text


def show_change(change: ChangeAnswer, before: ChangeAnswer | None = None) -> None:
    text = describe_change(change, before)
    say(f"{change.channel} version {change.version}: {text}")
    if change.overridden:
        say("it overrode the gate; the history shows it")


def _lineage_rows(line: "LineageAnswer") -> Iterator[list[object]]:
    subject = line.checkpoint
    yield ["checkpoint", subject.name, f"{subject.form}, {subject.state}"]
    for parent in line.parents:
        yield ["parent", parent.name, f"{parent.form}, {parent.state}"]
    for child in line.children:
        yield ["child", child, ""]
    for channel in line.channels:
        yield ["serves", channel.channel, channel.arm]
    for shard in line.shards:
        yield ["shard", shard.name or shard.shard, f"of {shard.checkpoint}, {shard.shard}"]
    for mark in line.marks:
        yield ["marked", mark.session_id, f"{mark.reason}, in {mark.shard} of {mark.checkpoint}"]
