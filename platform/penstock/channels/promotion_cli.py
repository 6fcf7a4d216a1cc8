"""`penstock promote` and `penstock rollback`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.channels.actor import (
    CHANNEL_DEFAULT,
    By,
    Channel,
    CheckpointName,
    Key,
    Reason,
    actor,
    check_override,
)
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json

if TYPE_CHECKING:
    from penstock.gate.verdicts import Verdict

_NONE = "none"


def promote(
    checkpoint: CheckpointName,
    *,
    reason: Reason,
    channel: Channel = CHANNEL_DEFAULT,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="CURRENT",
            help="Only if the channel is at this one; `none`: at nothing yet. By default what it "
            "is at when the command begins.",
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
    key: Key = None,
    by: By = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Point a channel at a checkpoint that the gate lets pass. Exit 1 where it does not.

    The gate is asked anew each time. A channel that changed meanwhile is left as it is.

    Example: penstock promote ckpt-0012 --expect ckpt-0011 --reason "better on core, as cheap"
    """
    from penstock.channels import promotion
    from penstock.gate import judging
    from penstock.gate.errors import GateRefused

    with open_existing(data) as lake:
        database = lake.database
        if override:
            check_override(database, tenant, key)
        wanted = promotion.Promotion(
            tenant=tenant,
            channel=channel,
            checkpoint=checkpoint,
            reason=reason,
            actor=actor(by),
            expect=_expected(expect),
            share=share,
            override=override,
        )

        def judge(channel: str, checkpoint: str) -> "Verdict":
            full = share is None
            return judging.judge(database, tenant, channel, checkpoint, full=full, share=share)

        try:
            change = promotion.promote(database, wanted, judge)
        except GateRefused as refused:
            _show_refusal(refused.facts["verdict"], json=json)
            raise
    _show(change, json=json)


def rollback(
    *,
    reason: Reason,
    channel: Channel = CHANNEL_DEFAULT,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="One that served on it, or a parent of the present one; the last good one by "
            "default, or the present one without its canary.",
        ),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="CURRENT", help="Only if the channel is at this one."),
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
    from penstock.channels import promotion
    from penstock.channels.channels import history

    wanted = promotion.Rollback(
        tenant=tenant,
        channel=channel,
        reason=reason,
        actor=actor(by),
        to=to,
        expect=_expected(expect),
    )
    with open_existing(data) as lake:
        change = promotion.rollback(lake.database, wanted)
        [before] = history(lake.database, tenant, channel, after=change.version - 2, limit=1)
    _show(change, before, json=json)
    if not json:
        say(f"{channel} is pinned: `penstock channels release {channel}` lets it be promoted again")


def _expected(text: str | None) -> Any:
    from penstock.channels.promotion import ANY

    if text is None:
        return ANY
    return None if text == _NONE else text


def _show_refusal(verdict: Any, *, json: bool) -> None:
    from penstock.gate.verdict_tables import show_verdict

    if json:
        show_json({"outcome": verdict.outcome, "id": verdict.id, "verdict": verdict.document})
    else:
        show_verdict(verdict)


def _show(change: Any, before: Any = None, *, json: bool) -> None:
    from penstock.channels.change_documents import document_of, what_it_did

    if json:
        show_json(document_of(change))
        return
    say(f"{change.channel} version {change.version}: {what_it_did(change, before)}")
    if change.overridden:
        say("it went past the gate, and is marked so for ever")
