"""`penstock gate hindsight`."""

from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.backends.terminal.output import say, show_table
from penstock.core.endpoint import Client
from penstock.lake.commands import command
from penstock.registry.channels.change import CHANNEL_DEFAULT
from penstock.registry.channels.promotion_cli import Channel


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
    from penstock_jobs.loop.hindsight.hindsight import (
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
