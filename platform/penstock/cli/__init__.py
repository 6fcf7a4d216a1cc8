"""The command line. Each command explains itself with `--help`."""

import sys
from importlib.metadata import entry_points

import typer

from penstock.access import cli as access
from penstock.channels import cli as channels
from penstock.channels import lineage_cli, promotion_cli, webhooks_cli
from penstock.checkpoints import cli as checkpoints
from penstock.cli import config
from penstock.errors import PenstockError
from penstock.fleet import cli as fleet
from penstock.fleet import follow_cli
from penstock.gate import cli as gate
from penstock.ingest import import_cli, ledger_cli, rejected_cli
from penstock.lake import cli as lake
from penstock.lake import database_cli, query_cli, snapshots_cli
from penstock.server import cli as server
from penstock.terminal.output import show_error

app = typer.Typer(
    name="penstock",
    help="Trajectories of coding agents, from production to training and back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("serve")(server.serve)
app.command("import")(import_cli.import_)
app.command("query")(query_cli.query)
app.command("ledger")(ledger_cli.ledger)
app.command("config")(config.config)
app.command("promote")(promotion_cli.promote)
app.command("rollback")(promotion_cli.rollback)
app.add_typer(rejected_cli.app, name="rejected")
app.add_typer(lake.app, name="lake")
app.add_typer(snapshots_cli.app, name="snapshots")
checkpoints.app.command("lineage")(lineage_cli.lineage)
app.add_typer(checkpoints.app, name="checkpoints")
gate.app.command("check")(promotion_cli.check)
app.add_typer(gate.app, name="gate")
channels.app.command("follow")(follow_cli.follow)
channels.app.command("fleet")(fleet.fleet)
app.add_typer(channels.app, name="channels")
app.add_typer(webhooks_cli.app, name="webhooks")
app.add_typer(access.app, name="keys")
app.add_typer(database_cli.app, name="db")
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
