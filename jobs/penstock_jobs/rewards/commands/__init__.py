"""`penstock rewards`."""

import typer

from penstock_jobs.rewards.commands import comparing, looking, working

app = typer.Typer(help="What sessions were worth, by what users did next.", no_args_is_help=True)
app.command("list")(looking.list_)
app.command("run")(working.run)
app.command("show")(looking.show)
app.command("compare")(comparing.compare)
app.command("rates")(comparing.rates)
app.command("backfill")(working.backfill)
app.command("judge")(looking.judge)
