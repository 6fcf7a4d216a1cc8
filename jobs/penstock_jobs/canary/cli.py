"""`penstock canary status`, and how looks are shown."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.channels.promotion_cli import CHANNEL_DEFAULT, Channel
from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.options import By, actor
from penstock.terminal.output import encode, say, show_json, show_table, time_of

if TYPE_CHECKING:
    from penstock_jobs.canary.trial import Trial


def status(
    channel: Channel = CHANNEL_DEFAULT,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What is tried or watched on a channel, and what the newest look said. It changes nothing.

    Exit 1 where that was a breach or an error.

    Example: penstock canary status --channel production
    """
    from penstock_jobs.canary.look import newest_look, situation_of

    with open_existing(data) as lake:
        situation = situation_of(lake, tenant, channel)
        trial = situation.trial
        look = newest_look(lake.database, trial) if trial is not None else None
    if json:
        looked_at = time_of(look.at).isoformat() if look is not None else None
        show_json(
            {
                "channel": channel,
                "trial": trial_document(trial) if trial is not None else None,
                "look": look.document if look is not None else None,
                "looked_at": looked_at,
            }
        )
    elif trial is None:
        say(f"{channel}: no canary runs, and no new checkpoint is watched")
    else:
        say(sentence_of(trial))
        if look is None:
            say("nobody has looked yet: `penstock canary watch --once`")
        else:
            say(f"looked at {time_of(look.at):%Y-%m-%d %H:%M:%S} UTC: {look.outcome}")
            show_look(look.document)
    if look is not None and look.outcome in ("breach", "error"):
        raise typer.Exit(1)


def sentence_of(trial: "Trial") -> str:
    since = f"since {time_of(trial.since_us):%Y-%m-%d %H:%M:%S} UTC, version {trial.since_version}"
    if trial.kind == "canary":
        share = f"{100 * (trial.share or 0):g} %"
        return (
            f"{trial.channel}: {trial.candidate} has {share} of the traffic beside"
            f" {trial.incumbent}, {since}"
        )
    until = time_of(trial.until_us or 0)
    return (
        f"{trial.channel}: {trial.candidate} has all traffic and is compared with"
        f" {trial.incumbent} before it, {since}, until {until:%Y-%m-%d %H:%M:%S} UTC"
    )


def trial_document(trial: "Trial") -> dict[str, Any]:
    """For JSON."""
    return {
        "kind": trial.kind,
        "candidate": trial.candidate,
        "incumbent": trial.incumbent,
        "share": trial.share,
        "since_version": trial.since_version,
        "since": time_of(trial.since_us).isoformat(),
        "step_since": time_of(trial.step_us).isoformat(),
        "until": time_of(trial.until_us).isoformat() if trial.until_us is not None else None,
    }


def show_look(document: Mapping[str, Any]) -> None:
    """The metrics as a table, and what is wrong with the whole."""
    columns = [
        "metric", "outcome", "canary", "current", "difference", "from", "to", "margin",
        "sessions", "pending", "unknown",
    ]  # fmt: skip
    if metrics := document["metrics"]:
        show_table(columns, [_row(one) for one in metrics])
    for one in metrics:
        if one["outcome"] != "pass":
            say(f"{one['metric']}: {one['why']}")
    if (ratio := document["sample_ratio"]) is not None:
        say(
            f"sample ratio: {ratio['outcome']}, {ratio['found']} of {ratio['users']} users in the"
            f" canary, expected {ratio['expected']:.1f}"
        )
    for reason, counts in document["left_out"].items():
        say(f"left out, {reason}: {_pair(counts)}")
    if document["outcome"] == "error" or not metrics:
        say(f"{document['outcome']}: {document['why']}")


def _row(one: Mapping[str, Any]) -> Sequence[object]:
    means = one["means"] or {}
    percent = one["scale"] == "ratio"
    interval = [_number(one[name], percent) for name in ("difference", "lower", "upper", "margin")]
    return [
        one["metric"], one["outcome"], _number(means.get("canary")), _number(means.get("current")),
        *interval, *(_pair(one[name]) for name in ("sessions", "pending", "unknown")),
    ]  # fmt: skip


def _pair(counts: Mapping[str, int] | None) -> str:
    return f"{counts['canary']} / {counts['current']}" if counts else ""


def _number(value: float | None, percent: bool = False) -> str:
    if value is None:
        return ""
    return f"{100 * value:.3g} %" if percent else f"{value:.4g}"


if TYPE_CHECKING:
    from penstock_jobs.canary.watch import Round


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
    from penstock_jobs.canary.watch import step_once

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

    from penstock_jobs.canary import watch as watcher

    last: list[watcher.Round] = []

    def tell(found: "Round") -> None:
        last[:] = [found]
        if json and not once:
            typer.echo(encode(_document(found)).decode())
        else:
            _show(found, json=json)

    with open_existing(data) as lake:
        never = Event()
        watcher.watch(lake, tenant, channel, tell=tell, wait=lambda s: once or never.wait(s))
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


app = typer.Typer(
    help="A checkpoint on a part of the traffic: looked at, given more, or taken back.",
    no_args_is_help=True,
)
app.command("status")(status)
app.command("step")(step)
app.command("watch")(watch)
