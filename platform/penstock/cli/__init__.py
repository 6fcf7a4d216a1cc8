"""The command line. Each command explains itself with `--help`."""

import sys
from importlib.metadata import entry_points

import typer

from penstock.cli import (
    channels,
    checkpoints,
    config,
    database,
    fleets,
    following,
    gate,
    imports,
    keys,
    lake,
    ledger,
    promote,
    query,
    rejected,
    serve,
    simulate,
    snapshots,
    watching,
    webhooks,
)
from penstock.cli.output import show_error
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    help="Trajectories of coding agents, from production to training and back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("simulate")(simulate.simulate)
app.command("serve")(serve.serve)
app.command("import")(imports.import_)
app.command("query")(query.query)
app.command("ledger")(ledger.ledger)
app.command("config")(config.config)
app.command("promote")(promote.promote)
app.command("rollback")(promote.rollback)
app.add_typer(rejected.app, name="rejected")
app.add_typer(lake.app, name="lake")
app.add_typer(snapshots.app, name="snapshots")
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(gate.app, name="gate")
channels.app.command("watch")(watching.watch)
channels.app.command("follow")(following.follow)
channels.app.command("fleet")(fleets.fleet)
app.add_typer(channels.app, name="channels")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(keys.app, name="keys")
app.add_typer(database.app, name="db")
for entry in entry_points(group="penstock.commands"):
    found = entry.load()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=entry.name)
    else:
        app.command(entry.name)(found)


def main() -> None:
    """Runs a command; a PenstockError becomes its message and its exit status."""
    sys.exit(_run())


def _run() -> int:
    try:
        app(standalone_mode=True)
    except PenstockError as error:
        show_error(error)
        return error.exit_status
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
    return 0
