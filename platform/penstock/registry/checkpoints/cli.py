"""`penstock checkpoints`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import (
    progress_of_bytes,
    say,
    show_fields,
    show_rows,
    show_text,
)
from penstock.core.endpoint import Client
from penstock.core.settings import load_settings
from penstock.lake.client import LocalClient
from penstock.lake.commands import asks, command
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.registry.checkpoints.endpoints import (
    LIST_CHECKPOINTS,
    REGISTER_CHECKPOINT,
    SHOW_MOVES,
    WITHDRAW_CHECKPOINT,
    CheckpointMoves,
    CheckpointsAnswer,
    RegisterRequest,
)

if TYPE_CHECKING:
    from penstock.registry.checkpoints.digests import FilesDigest

app = typer.Typer(
    help="Model versions: their digests, locations and lineage.", no_args_is_help=True
)
_UNCHECKED = {
    "unreachable": "its files are unreachable from here and were not compared with the digest",
    "not_looked": "its files were not compared with the digest",
}


@app.command()
@command(by=True, make=True)
def register(
    client: Client,
    name: Annotated[str, typer.Argument(help="The name of the checkpoint.")],
    *,
    uri: Annotated[str, typer.Option(help="The location of its files: a path, s3://…, https://…")],
    digest: Annotated[
        str | None,
        typer.Option(metavar="sha256:…", help="The digest of its files; computed by default."),
    ] = None,
    parent: Annotated[str | None, typer.Option(help="The checkpoint it was trained from.")] = None,
    delta: Annotated[
        bool, typer.Option("--delta", help="Its files hold only the difference from the parent.")
    ] = False,
    shards: Annotated[
        list[str] | None,
        typer.Option(metavar="ID,…", help="Shards it was trained on, beyond those of its parents."),
    ] = None,
    look: Annotated[
        bool, typer.Option("--look/--no-look", help="Compare the files with the digest.")
    ] = True,
    note: Annotated[str, typer.Option(help="A note about it.")] = "",
    data: options.AnyData = None,
) -> Iterator[object]:
    """Register a checkpoint. Repeating a registration changes nothing.

    Files in a folder or in S3 are read and compared with the digest. `penstock checkpoints digest`
    prints it.

    Example: penstock checkpoints register ckpt-0012 --uri /models/0012 --parent ckpt-0011
    """
    uri = _absolute(uri)
    if digest is None and not isinstance(client, LocalClient):
        digest = _digest(uri, data).digest  # the service does not have the files
    question = RegisterRequest(
        name=name,
        uri=uri,
        digest=digest or "",
        parent=parent,
        form="delta" if delta else "whole",
        shards=[shard for listed in shards or () for shard in listed.split(",") if shard],
        note=note,
        look=look,
    )
    checkpoint = client.call(REGISTER_CHECKPOINT, question)
    yield checkpoint
    say(f"{checkpoint.name} is {checkpoint.digest}, {checkpoint.state}")
    if why := _UNCHECKED.get(checkpoint.checked):
        say(why)


@app.command()
@command()
def digest(
    uri: Annotated[str, typer.Argument(help="A file, a folder, or s3://…")],
    data: options.AnyData = None,
) -> Iterator[object]:
    """Compute the digest of files, as `register` takes it.

    Example: penstock checkpoints digest /models/0012
    """
    uri = _absolute(uri)
    files = _digest(uri, data)
    yield {"uri": uri, "digest": files.digest, "bytes": files.bytes}
    show_text(str(files.digest))


@app.command("list")
@asks(LIST_CHECKPOINTS)
def list_(page: CheckpointsAnswer) -> None:
    """List all checkpoints; the newest comes last.

    Example: penstock checkpoints list --state serving
    """
    names = ("name", "state", "form", "parent", "digest", "checked", "registered_at")
    show_rows(page.checkpoints, *names, registered_by="by")


@app.command()
@asks(SHOW_MOVES)
def show(checkpoint: CheckpointMoves) -> None:
    """Show a checkpoint and the history of its states.

    Example: penstock checkpoints show ckpt-0012
    """
    document = dict(vars(checkpoint))
    moves = document.pop("moves")
    show_fields(document)
    titles = {"from_state": "from", "to_state": "to", "actor": "who", "reason": "why"}
    show_rows(moves, **{"at": "when (UTC)"} | titles)


@app.command()
@asks(WITHDRAW_CHECKPOINT, by=True)
def withdraw(checkpoint: Checkpoint) -> None:
    """Take a checkpoint out of use for ever. Refused while a channel points at it.

    Example: penstock checkpoints withdraw ckpt-0012 --reason "trained on sessions that were erased"
    """
    say(f"{checkpoint.name} was withdrawn")


def _digest(uri: str, data: Path | None) -> "FilesDigest":
    from penstock.core.errors import InvalidInput
    from penstock.registry.checkpoints import digests

    uri = digests.check_uri(uri)
    with progress_of_bytes("reading") as progress:
        files = digests.digest_files(uri, load_settings(data), progress)
    if files.digest is None:
        raise InvalidInput(what=uri, why=files.why)
    return files


def _absolute(uri: str) -> str:
    """Make a path of the command line absolute."""
    return uri if ":" in uri.split("/", 1)[0] else str(Path(uri).absolute())
