"""`penstock shards`."""

import typer

from penstock_jobs.shards.commands import building, exporting, looking

app = typer.Typer(help="Training shards, built from queries.", no_args_is_help=True)
app.command("build")(building.build)
app.command("list")(looking.list_)
app.command("show")(looking.show)
app.command("verify")(looking.verify)
app.command("diff")(looking.diff)
app.command("export")(exporting.export)
