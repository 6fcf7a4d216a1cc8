"""`penstock canary`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.options import By, actor
from penstock.backends.terminal.output import say, show_json, show_json_line, show_table
from penstock.core.endpoint import Client
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake
from penstock.registry.channels.endpoints import ChannelRequest
from penstock.registry.channels.promotion_cli import CHANNEL_DEFAULT, Channel

if TYPE_CHECKING:
    from penstock_jobs.loop.canary.look import TrialAnswer
    from penstock_jobs.loop.canary.watch import WatchRound

_ACTION_TEXTS = {
    "nothing": "nothing to look at", "looked": "looked", "rolled_back": "ROLLED BACK",
    "raised": "given more traffic", "promoted": "given all traffic", "refused": "refused",
}  # fmt: skip

app = typer.Typer(
    help="A checkpoint on part of the traffic: look at it, give it more, or take it back.",
    no_args_is_help=True,
)


@app.command()
@command()
def status(client: Client, channel: Channel = CHANNEL_DEFAULT) -> Iterator[object]:
    """Show the canary or the watch of a channel with its newest look. It changes nothing.

    Exit 1 if that look was a breach or an error.

    Example: penstock canary status --channel production
    """

    from penstock_jobs.loop.canary.look import SHOW_CANARY

    answer = client.call(SHOW_CANARY, ChannelRequest(name=channel))
    look = answer.look
    yield Outcome(answer, failed=look is not None and look["outcome"] in ("breach", "error"))
    if answer.trial is None:
        say(f"{channel}: no canary runs, and no new checkpoint is watched")
        return
    say(_trial_sentence(channel, answer.trial))
    if look is None or answer.looked_at is None:
        say("nobody has looked yet: `penstock canary watch --once`")
    else:
        say(f"looked at {_moment(answer.looked_at)}: {look['outcome']}")
        _show_look(look)


@app.command()
@command()
def step(
    lake: Lake,
    channel: Channel = CHANNEL_DEFAULT,
    by: By = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Look at a canary now and give it its next share; after the last share all traffic.

    The steps are those of the channel's policy, and each goes through the gate. Exit 1 if it is
    too early, or the look or the gate speaks against it.

    Example: penstock canary step --channel production
    """
    from penstock_jobs.loop.canary.watch import step_once

    result = step_once(lake, tenant, channel, actor=actor(by))
    yield Outcome(_round_document(result), failed=result.change is None)
    _show_round(result)


@app.command()
@command()
def watch(
    lake: Lake,
    channel: Channel = CHANNEL_DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="Look once, act on it, and end.")] = False,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Look at the canary or the new checkpoint of a channel again and again, and roll back what is
    worse.

    Where the policy says auto_step, it gives the canary more traffic too. With --json each look is
    a line. With --once, exit 1 on a breach or an error.

    Example: penstock canary watch --channel production
    """
    from threading import Event

    from penstock_jobs.loop.canary import watch as watcher

    rounds: list[WatchRound] = []

    def tell(result: "WatchRound") -> None:
        rounds[:] = [result]
        if not json:
            _show_round(result)
        elif once:
            show_json(_round_document(result))
        else:
            show_json_line(_round_document(result))

    never = Event()
    watcher.watch(lake, tenant, channel, tell=tell, wait=lambda s: once or never.wait(s))
    if not rounds:
        say(f"{channel}: another watcher is looking at this moment")
        raise typer.Exit(1)
    [result] = rounds
    failed = result.look is not None and result.look.outcome == "error"
    if failed or result.did in ("rolled_back", "refused"):
        raise typer.Exit(1)


def _show_round(result: "WatchRound") -> None:
    from penstock_jobs.loop.canary.look import trial_answer

    if result.trial is not None:
        say(_trial_sentence(result.trial.channel, trial_answer(result.trial)))
    if result.look is not None:
        _show_look(asdict(result.look))
    say(f"{_ACTION_TEXTS[result.did]}: {result.why}")


def _round_document(result: "WatchRound") -> dict[str, Any]:
    from penstock_jobs.loop.canary.look import trial_answer

    version = result.change.version if result.change is not None else None
    trial = trial_answer(result.trial) if result.trial is not None else None
    document = {"did": result.did, "why": result.why, "trial": trial}
    return {**document, "look": result.look, "version": version}


def _trial_sentence(channel: str, trial: "TrialAnswer") -> str:
    since = f"since {_moment(trial.since)}, version {trial.since_version}"
    traffic = f"has {100 * (trial.share or 0):g} % of the traffic beside {trial.incumbent}"
    if trial.until is not None:
        traffic = f"has all traffic and is compared with {trial.incumbent} before it"
        since = f"{since}, until {_moment(trial.until)}"
    return f"{channel}: {trial.candidate} {traffic}, {since}"


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"


def _show_look(document: Mapping[str, Any]) -> None:
    changes = {"difference": "difference", "lower": "from", "upper": "to", "margin": "margin"}
    arms, counts = ("canary", "current"), ("sessions", "pending", "unknown")
    metrics = document["metrics"]
    if metrics:
        rows = [
            [
                metric["metric"],
                metric["outcome"],
                *(_number((metric["means"] or {}).get(arm)) for arm in arms),
                *(_number(metric[name], metric["scale"] == "ratio") for name in changes),
                *(_arm_counts(metric[name]) for name in counts),
            ]
            for metric in metrics
        ]
        show_table(["metric", "outcome", *arms, *changes.values(), *counts], rows)
    for metric in metrics:
        if metric["outcome"] != "pass":
            say(f"{metric['metric']}: {metric['why']}")
    if (ratio := document["sample_ratio"]) is not None:
        share = f"{ratio['found']} of {ratio['users']} users in the canary"
        say(f"sample ratio: {ratio['outcome']}, {share}, expected {ratio['expected']:.1f}")
    for reason, counts in document["left_out"].items():
        say(f"left out, {reason}: {_arm_counts(counts)}")
    if document["outcome"] == "error" or not metrics:
        say(f"{document['outcome']}: {document['why']}")


def _arm_counts(counts: Mapping[str, int] | None) -> str:
    return f"{counts['canary']} / {counts['current']}" if counts else ""


def _number(value: float | None, percent: bool = False) -> str:
    if value is None:
        return ""
    return f"{100 * value:.3g} %" if percent else f"{value:.4g}"
