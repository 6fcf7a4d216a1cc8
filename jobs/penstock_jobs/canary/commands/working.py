"""`penstock canary step | watch`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.channels.promotion_cli import CHANNEL_DEFAULT, Channel
from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.options import By, actor
from penstock.terminal.output import encode, say, show_json
from penstock_jobs.canary.commands.showing import sentence_of, show_look, trial_document

if TYPE_CHECKING:
    from penstock_jobs.canary.watching import Round


def step(
    channel: Channel = CHANNEL_DEFAULT,
    by: By = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Look at a canary now, and give it its next share; after the last one all traffic.

    By the steps of the channel's policy, through the gate. Exit 1 where it is too early, the look
    speaks against it, or the gate does.

    Example: penstock canary step --channel production
    """
    from penstock_jobs.canary.watching import step_once

    with open_existing(data) as lake:
        found = step_once(lake, tenant, channel, actor=actor(by))
    _show(found, json=json)
    if found.change is None:
        raise typer.Exit(1)


def watch(
    channel: Channel = CHANNEL_DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="One look, and what follows of it.")] = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Look at what is tried on a channel, again and again, and roll back by itself what is worse.

    Where the policy says auto_step, it gives the canary more traffic too. With --json each look is
    a line. With --once, exit 1 on a breach or an error.

    Example: penstock canary watch --channel production
    """
    from threading import Event

    from penstock_jobs.canary import watching

    last: list[watching.Round] = []

    def tell(found: "Round") -> None:
        last[:] = [found]
        if json and not once:
            typer.echo(encode(_document(found)).decode())
        else:
            _show(found, json=json)

    with open_existing(data) as lake:
        never = Event()
        watching.watch(lake, tenant, channel, tell=tell, wait=lambda s: once or never.wait(s))
    if not last:
        say(f"{channel}: another watcher is looking at this moment")
        raise typer.Exit(1)
    look = last[0].look
    if last[0].did in ("rolled_back", "refused") or (look is not None and look.outcome == "error"):
        raise typer.Exit(1)


def _show(found: "Round", *, json: bool) -> None:
    if json:
        show_json(_document(found))
        return
    if found.trial is not None:
        say(sentence_of(found.trial))
    if found.look is not None:
        show_look(found.look.document())
    say(f"{_SAYS[found.did]}: {found.why}")


def _document(found: "Round") -> dict[str, Any]:
    return {
        "did": found.did,
        "why": found.why,
        "trial": trial_document(found.trial) if found.trial is not None else None,
        "look": found.look.document() if found.look is not None else None,
        "version": found.change.version if found.change is not None else None,
    }


_SAYS = {
    "nothing": "nothing to look at",
    "looked": "looked",
    "rolled_back": "ROLLED BACK",
    "raised": "given more traffic",
    "promoted": "given all traffic",
    "refused": "refused",
}
