"""`penstock checkpoints`."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.checkpoints.checkpoint import State
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import LocalDesk, open_desk
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.long_commands import progress_of_bytes
from penstock.terminal.options import By, CheckpointName, Reason
from penstock.terminal.output import say, say_more, show_json, show_table, show_text

if TYPE_CHECKING:
    from penstock.checkpoints.digests import FilesDigest

app = typer.Typer(
    help="Model versions: their digests, where they lie, what they came from.", no_args_is_help=True
)
_UNCHECKED = {
    "unreachable": "its files cannot be reached from here: nobody compared them with the digest",
    "not_looked": "nobody compared its files with the digest",
}


@app.command("register")
def register(
    name: Annotated[str, typer.Argument(help="What it is called from now on.")],
    *,
    uri: Annotated[str, typer.Option(help="Where its files lie: a path, s3://…, https://…")],
    digest: Annotated[
        str | None,
        typer.Option(metavar="sha256:…", help="Of its files; taken from them when left out."),
    ] = None,
    parent: Annotated[str | None, typer.Option(help="The checkpoint it was trained from.")] = None,
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
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Make a checkpoint known. The same again changes nothing.

    Files in a folder or in S3 are read and compared with the digest; `penstock checkpoints digest`
    says what that is.

    Example: penstock checkpoints register ckpt-0012 --uri /models/0012 --parent ckpt-0011
    """
    from penstock.checkpoints.calls import REGISTER_CHECKPOINT, RegisterQuestion

    uri = _absolute(uri)
    with open_desk(data, url, tenant, by=by, make=True) as desk:
        if digest is None and not isinstance(desk, LocalDesk):
            digest = _digest(uri, data).digest  # the service has not the files
        question = RegisterQuestion(
            name=name,
            uri=uri,
            digest=digest or "",
            parent=parent,
            form="delta" if delta else "whole",
            shards=[shard for listed in shards or () for shard in listed.split(",") if shard],
            note=note,
            look=look,
        )
        checkpoint = desk.ask(REGISTER_CHECKPOINT, question)
    if json:
        show_json(checkpoint)
        return
    say(f"{checkpoint.name} is {checkpoint.digest}, {checkpoint.state}")
    if why := _UNCHECKED.get(checkpoint.checked):
        say(why)


@app.command("digest")
def digest(
    uri: Annotated[str, typer.Argument(help="A file, a folder, or s3://…")],
    data: options.DeskData = None,
    json: options.Json = False,
) -> None:
    """The digest of files, as `register` takes it.

    Example: penstock checkpoints digest /models/0012
    """
    uri = _absolute(uri)
    files = _digest(uri, data)
    document = {"uri": uri, "digest": files.digest, "bytes": files.bytes}
    show_json(document) if json else show_text(str(files.digest))


@app.command("list")
def list_(
    *,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """All checkpoints; the newest comes last.

    Example: penstock checkpoints list --state serving
    """
    from penstock.checkpoints.calls import LIST_CHECKPOINTS, CheckpointsQuestion

    with open_desk(data, url, tenant) as desk:
        question = CheckpointsQuestion(state=state, limit=limit, cursor=cursor)
        page = desk.ask(LIST_CHECKPOINTS, question)
    say_more(page.next)
    if json:
        show_json(page.checkpoints)
        return
    names = ["name", "state", "form", "parent", "digest", "checked"]
    rows: list[list[object]] = []
    for each in page.checkpoints:
        registered = datetime.fromisoformat(each.registered_at)
        rows.append([*(getattr(each, name) for name in names), registered, each.registered_by])
    show_table([*names, "registered (UTC)", "by"], rows)


@app.command("show")
def show(
    name: CheckpointName,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """One checkpoint, and how it came to its state.

    Example: penstock checkpoints show ckpt-0012
    """
    from penstock.checkpoints.calls import SHOW_MOVES, CheckpointQuestion

    with open_desk(data, url, tenant) as desk:
        checkpoint = desk.ask(SHOW_MOVES, CheckpointQuestion(name=name))
    if json:
        show_json(checkpoint)
        return
    document = dict(vars(checkpoint))
    moves = document.pop("moves")
    show_table(["what", "value"], [pair for pair in document.items() if pair[1] is not None])
    columns = ["when (UTC)", "from", "to", "who", "why"]
    rows: list[list[object]] = []
    for move in moves:
        at = datetime.fromisoformat(move.at)
        rows.append([at, move.from_state, move.to_state, move.actor, move.reason])
    show_table(columns, rows)


@app.command("withdraw")
def withdraw(
    name: CheckpointName,
    *,
    reason: Reason,
    by: By = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Take a checkpoint out of use for ever. Not while a channel is at it.

    Example: penstock checkpoints withdraw ckpt-0012 --reason "trained on sessions that were erased"
    """
    from penstock.checkpoints.calls import WITHDRAW_CHECKPOINT, WithdrawQuestion

    with open_desk(data, url, tenant, by=by) as desk:
        question = WithdrawQuestion(name=name, reason=reason)
        checkpoint = desk.ask(WITHDRAW_CHECKPOINT, question)
    show_json(checkpoint) if json else say(f"{checkpoint.name} is withdrawn")


def _digest(uri: str, data: Path | None) -> "FilesDigest":
    from penstock.checkpoints import digests
    from penstock.errors import InvalidInput

    uri = digests.check_uri(uri)
    with progress_of_bytes("reading") as progress:
        files = digests.digest_files(uri, load_settings(data), progress)
    if files.digest is None:
        raise InvalidInput(what=uri, why=files.why)
    return files


def _absolute(uri: str) -> str:
    """What somebody names on the command line may be relative to where they are."""
    return uri if ":" in uri.split("/", 1)[0] else str(Path(uri).absolute())
