"""`penstock checkpoints`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing, open_or_make
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.options import By, CheckpointName, Reason, actor
from penstock.terminal.output import facts, say, show_json, show_table, time_of

if TYPE_CHECKING:
    from penstock.checkpoints.checkpoint import Checkpoint

app = typer.Typer(
    help="Model versions: their digests, where they lie, what they came from.",
    no_args_is_help=True,
)
State = Literal["registered", "serving", "retired", "rolled_back", "withdrawn"]


@app.command("register")
def register(
    name: Annotated[str, typer.Argument(help="What it is called from now on.")],
    *,
    uri: Annotated[str, typer.Option(help="Where its files lie: a path, s3://…, https://…")],
    digest: Annotated[
        str | None,
        typer.Option(metavar="sha256:…", help="Of its files; taken from them when left out."),
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="The checkpoint that it was trained from.")
    ] = None,
    delta: Annotated[
        bool, typer.Option("--delta", help="Its files are what differs from the parent.")
    ] = False,
    shards: Annotated[
        list[str] | None,
        typer.Option(metavar="ID,…", help="What it was trained on, beyond its parents."),
    ] = None,
    look: Annotated[
        bool, typer.Option("--look/--no-look", help="Compare the files with the digest.")
    ] = True,
    note: Annotated[str, typer.Option(help="What it is.")] = "",
    by: By = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Make a checkpoint known. The same again changes nothing.

    Files in a folder or in S3 are read and compared with the digest; `penstock checkpoints digest`
    says what that is.

    Example: penstock checkpoints register ckpt-0012 --uri /models/0012 --parent ckpt-0011
    """
    from penstock.checkpoints import registration

    settings = load_settings(data)
    with open_or_make(settings) as lake, _reading() as progress:
        made = registration.register(
            lake.database,
            settings,
            tenant=tenant,
            name=name,
            uri=_absolute(uri),
            digest=digest,
            parent=parent,
            form="delta" if delta else "whole",
            shards=[one for named in shards or () for one in named.split(",") if one],
            note=note,
            actor=actor(by),
            look=look,
            progress=progress,
        )
    if json:
        show_json(facts(made))
        return
    say(f"{made.name} is {made.digest}, {made.state}")
    if why := _UNCHECKED.get(made.checked):
        say(why)


@app.command("digest")
def digest(
    uri: Annotated[str, typer.Argument(help="A file, a folder, or s3://…")],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """The digest of files, as `register` takes it.

    Example: penstock checkpoints digest /models/0012
    """
    from penstock.checkpoints import digests
    from penstock.errors import InvalidInput

    where = digests.check_uri(_absolute(uri))
    with _reading() as progress:
        found = digests.digest_files(where, load_settings(data), progress)
    if found.digest is None:
        raise InvalidInput(what=where, why=found.why)
    if json:
        show_json({"uri": where, "digest": found.digest, "bytes": found.bytes})
    else:
        typer.echo(found.digest)


@app.command("list")
def list_(
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """All checkpoints; the newest comes last.

    Example: penstock checkpoints list --state serving
    """
    from penstock.checkpoints.registration import list_checkpoints

    with open_existing(data) as lake:
        found = list_checkpoints(lake.database, tenant, state=state)
    if json:
        show_json([facts(one) for one in found])
        return
    columns = ["name", "state", "form", "parent", "digest", "checked", "registered (UTC)", "by"]
    show_table(columns, [_row(one) for one in found])


@app.command("show")
def show(
    name: CheckpointName,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """One checkpoint, and how it came to its state.

    Example: penstock checkpoints show ckpt-0012
    """
    from penstock.checkpoints.lineage import lineage

    with open_existing(data) as lake:
        found = lineage(lake.database, tenant, name)
    if json:
        show_json(facts(found.checkpoint) | {"moves": [_move(one) for one in found.moves]})
        return
    rows = [(what, value) for what, value in facts(found.checkpoint).items() if value is not None]
    show_table(["what", "value"], rows)
    columns = ["when (UTC)", "from", "to", "who", "why"]
    moves = found.moves
    show_table(
        columns, [[time_of(m.at), m.from_state, m.to_state, m.actor, m.reason] for m in moves]
    )


@app.command("withdraw")
def withdraw(
    name: CheckpointName,
    *,
    reason: Reason,
    by: By = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Take a checkpoint out of use for ever. Not while a channel is at it.

    Example: penstock checkpoints withdraw ckpt-0012 --reason "trained on sessions that were erased"
    """
    from penstock.checkpoints import registration

    with open_existing(data) as lake:
        found = registration.withdraw(
            lake.database, tenant=tenant, name=name, reason=reason, actor=actor(by)
        )
    show_json(facts(found)) if json else say(f"{found.name} is withdrawn")


_UNCHECKED = {
    "unreachable": "its files cannot be reached from here: nobody compared them with the digest",
    "not_looked": "nobody compared its files with the digest",
}


def _absolute(uri: str) -> str:
    """What somebody names on the command line may be relative to where they are."""
    return uri if ":" in uri.split("/", 1)[0] else str(Path(uri).absolute())


@contextmanager
def _reading() -> Iterator[Callable[[int], object]]:
    """Shows on a terminal how much was read."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("reading", DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task("reading", total=None)
        yield lambda count: progress.advance(task, count)


def _row(one: "Checkpoint") -> list[object]:
    when = time_of(one.registered_at)
    return [
        one.name, one.state, one.form, one.parent, one.digest, one.checked, when, one.registered_by
    ]  # fmt: skip


def _move(one: Any) -> dict[str, Any]:
    return facts(one) | {"at": time_of(one.at).isoformat()}
