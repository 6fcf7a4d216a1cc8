"""`penstock loop`, `penstock canary` and `penstock gate hindsight`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import ended_as_by_ctrl_c
from penstock.backends.terminal.options import By, actor
from penstock.backends.terminal.output import say, show_json, show_json_line, show_table
from penstock.core.clock import duration_text
from penstock.core.endpoint import Client
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, asks, command
from penstock.lake.lake import Lake
from penstock.registry.channels.change import CHANNEL_DEFAULT
from penstock.registry.channels.endpoints import ChannelRequest
from penstock.registry.channels.promotion_cli import Channel
from penstock_jobs.loop.endpoints import (
    SHOW_CYCLES,
    SHOW_LOOPS,
    CycleAnswer,
    CyclesAnswer,
    cycle_answer,
)

if TYPE_CHECKING:
    from penstock_jobs.loop.canary.look import TrialAnswer
    from penstock_jobs.loop.canary.watch import WatchRound

app = typer.Typer(
    help="From sessions to a checkpoint that serves, again and again, by a loop file.",
    no_args_is_help=True,
)


@app.command()
@command()
def run(
    lake: Lake,
    loop: Annotated[
        Path, typer.Argument(parser=options.path, metavar="LOOP.toml", help="The loop file.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Run the open cycle, or a new one, to its end.")
    ] = False,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Run cycles: rewards, shard, trainer, benchmark, gate, promotion, canary and watch.

    It can be killed at any point, and several runners on any machines can share a loop. Stages are
    rows in the database, and whoever claims one does it. With --once, exit 1 if the cycle promoted
    nothing; if a cycle cannot begin yet, the command says what it waits for.

    Example: penstock loop run examples/loops/core.toml --once
    """
    from penstock_jobs.loop.loop_file import load_loop
    from penstock_jobs.loop.runner import Runner

    loop_file = load_loop(loop)
    never = Event()
    with ended_as_by_ctrl_c():
        runner = Runner(lake=lake, loop=loop_file, tenant=tenant, wait=never.wait, tell=say)
        if not once:
            runner.run()
            return
        cycle = runner.run_once()
    answer = cycle_answer(cycle)
    yield Outcome(answer, failed=cycle.outcome not in ("promoted", None))
    _show_cycle(answer)


@app.command()
@asks(SHOW_LOOPS)
def status(page: CyclesAnswer) -> None:
    """Show the newest cycle of each loop, what it waits for, and how much of its budget is used.

    Example: penstock loop status
    """
    if not page.cycles:
        say("No loop has run yet: `penstock loop run LOOP.toml`")
    for cycle in page.cycles:
        _show_cycle(cycle)


@app.command()
@asks(SHOW_CYCLES)
def history(page: CyclesAnswer) -> None:
    """List cycles: how each ended and why, and how long each stage took.

    Example: penstock loop history --loop core
    """
    cycles = page.cycles
    names = list(dict.fromkeys(stage.stage for cycle in cycles for stage in cycle.stages))
    rows: list[list[object]] = []
    for cycle in cycles:
        took_s = cycle.took_s
        stages = {stage.stage: _duration(stage.took_s) for stage in cycle.stages}
        state = cycle.outcome or ("running" if cycle.began_at is not None else "waiting")
        began = _moment(cycle.began_at) if cycle.began_at else ""
        share = "" if took_s is None else f"{took_s / max(cycle.budget_s, 1):.0%}"
        row = [cycle.loop, cycle.cycle, state, cycle.checkpoint, cycle.parent, began]
        rows.append([*row, _duration(took_s), share, *(stages.get(name, "") for name in names)])
    columns = ["loop", "cycle", "outcome", "checkpoint", "parent", "began", "took", "budget"]
    show_table([*columns, *names], rows)
    for cycle in cycles:
        if cycle.why:
            say(f"{cycle.loop} {cycle.cycle}: {cycle.why}")


def _show_cycle(cycle: CycleAnswer) -> None:
    head = f"{cycle.loop}, cycle {cycle.cycle} for {cycle.channel}"
    if cycle.ended_at is not None:
        head += f": {cycle.outcome}{cycle.why and f', {cycle.why}'}"
    elif cycle.began_at is None:
        head += " has not begun"
    if cycle.took_s is not None:
        over = ", OVER ITS BUDGET" if cycle.over_budget else ""
        head += f"; {_duration(cycle.took_s)} of {_duration(cycle.budget_s)}{over}"
    say(head)
    rows = []
    for stage in cycle.stages:
        why = stage.why
        if stage.state == "running":
            silent = ", which is silent: the next runner takes over" * stage.silent
            why = f"by {stage.owner}{silent}"
        elif stage.again_at is not None:
            why += f" (again at {datetime.fromisoformat(stage.again_at):%H:%M:%S} UTC)"
        took = _duration(stage.took_s)
        rows.append([stage.stage, stage.state, took, stage.claims, stage.failures, why])
    show_table(["stage", "state", "took", "claims", "failures", "what"], rows)


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else duration_text(seconds)


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S}"


# The canary


canary_app = typer.Typer(
    help="A checkpoint on part of the traffic: look, give it more, or take it back.",
    no_args_is_help=True,
)
_ACTION_TEXTS = {
    "nothing": "nothing to look at", "looked": "looked", "rolled_back": "ROLLED BACK",
    "raised": "given more traffic", "promoted": "given all traffic", "refused": "refused",
}  # fmt: skip


@canary_app.command("status")
@command()
def canary_status(client: Client, channel: Channel = CHANNEL_DEFAULT) -> Iterator[object]:
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
        say(f"looked at {_moment(answer.looked_at)} UTC: {look['outcome']}")
        _show_look(look)


@canary_app.command()
@command()
def step(
    lake: Lake,
    channel: Channel = CHANNEL_DEFAULT,
    by: By = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Look at a canary now and give it its next share; after the last share all traffic.

    The channel's policy names the shares, and the gate decides on each. Exit 1 if it is too early,
    or if the look or the gate speaks against it.

    Example: penstock canary step --channel production
    """
    from penstock_jobs.loop.canary.watch import step_once

    result = step_once(lake, tenant, channel, actor=actor(by))
    yield Outcome(_round_document(result), failed=result.change is None)
    _show_round(result)


@canary_app.command()
@command()
def watch(
    lake: Lake,
    channel: Channel = CHANNEL_DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="Look once, act on it, and end.")] = False,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Watch the canary or the new checkpoint of a channel, and roll back what is worse.

    If the policy says auto_step, it gives the canary more traffic too. With --json each look is
    a line. With --once, exit 1 on a breach or an error.

    Example: penstock canary watch --channel production
    """
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
    if failed or result.action in ("rolled_back", "refused"):
        raise typer.Exit(1)


def _show_round(result: "WatchRound") -> None:
    from penstock_jobs.loop.canary.look import trial_answer

    if result.trial is not None:
        say(_trial_sentence(result.trial.channel, trial_answer(result.trial)))
    if result.look is not None:
        _show_look(asdict(result.look))
    say(f"{_ACTION_TEXTS[result.action]}: {result.why}")


def _round_document(result: "WatchRound") -> dict[str, Any]:
    from penstock_jobs.loop.canary.look import trial_answer

    return {
        "action": result.action,
        "why": result.why,
        "trial": trial_answer(result.trial) if result.trial is not None else None,
        "look": result.look,
        "version": result.change.version if result.change is not None else None,
    }


def _trial_sentence(channel: str, trial: "TrialAnswer") -> str:
    since = f"since {_moment(trial.since)} UTC, version {trial.since_version}"
    traffic = f"has {100 * (trial.share or 0):g} % of the traffic beside {trial.incumbent}"
    if trial.until is not None:
        traffic = f"has all traffic and is compared with {trial.incumbent} before it"
        since = f"{since}, until {_moment(trial.until)} UTC"
    return f"{channel}: {trial.candidate} {traffic}, {since}"


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


# What production did after a verdict


@command()
def hindsight(
    client: Client,
    channel: Channel = CHANNEL_DEFAULT,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An online metric, as [[live]] names them; repeatable."),
    ] = None,
    definition: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of rewards and rates. Default: the one that ran last."),
    ] = None,
    margin: Annotated[
        list[float] | None,
        typer.Option(min=0, max=1, help="A margin that the gate might have allowed; repeatable."),
    ] = None,
) -> Iterator[object]:
    """Show verdicts beside what users met, and whether a suite foretells production.

    Each pair of checkpoints counts that has a verdict and live traffic: a canary, or one after the
    other. Candidates that never served are named, and count nowhere.

    Example: penstock gate hindsight --metric work_left --margin 0.05
    """
    from penstock_jobs.loop.hindsight import (
        LOOK_BACK,
        HindsightRequest,
        foresight_rows,
        margin_rows,
        pair_rows,
    )

    question = HindsightRequest(
        name=channel, metrics=metric or [], definition=definition, margins=margin or []
    )
    answer = client.call(LOOK_BACK, question)
    yield answer
    served = sum(bool(pair.online) for pair in answer.pairs)
    say(f"{channel}: {len(answer.pairs)} pairs with a verdict, {served} of them with enough users.")
    for why in answer.unknown:
        say(why)
    if not answer.pairs:
        say("A pair needs a verdict that compares two checkpoints: `penstock promote`.")
        return
    first = next((each.online for each in answer.metrics), "")
    columns = ["candidate", "incumbent", "verdict", "offline", "gain", "live", "sessions"]
    show_table([*columns, f"{first} gain" if first else "online gain"], pair_rows(answer, first))
    if not answer.metrics:
        return
    say("")
    columns = ["offline", "online", "pairs", "signs agree", "of those shown", "rank correlation"]
    show_table([*columns, "noise offline / online", ""], foresight_rows(answer))
    if rows := margin_rows(answer, first):
        say("")
        columns = ["offline", "margin", "would pass", "of them worse (shown)", "undecided", "fail"]
        show_table([*columns, "kept out though better (shown)"], rows)
    say(f"Gains: more is better. With fewer than {answer.pairs_least} pairs nothing is said.")
    say("What the gate kept out has no outcome, so these pairs differ less than all would.")
