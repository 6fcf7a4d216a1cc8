"""`penstock checkpoints`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.checkpoints.checkpoint import State
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing, open_or_make
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.long_commands import progress_of_bytes
from penstock.terminal.options import By, CheckpointName, Reason, actor
from penstock.terminal.output import facts, say, show_json, show_table, show_text, time_of

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
    with open_or_make(settings) as lake, progress_of_bytes("reading") as progress:
        checkpoint = registration.register(
            lake.database,
            settings,
            tenant=tenant,
            name=name,
            uri=_absolute(uri),
            digest=digest,
            parent=parent,
            form="delta" if delta else "whole",
            shards=[shard for listed in shards or () for shard in listed.split(",") if shard],
            note=note,
            actor=actor(by),
            look=look,
            progress=progress,
        )
    if json:
        show_json(facts(checkpoint))
        return
    say(f"{checkpoint.name} is {checkpoint.digest}, {checkpoint.state}")
    if why := _UNCHECKED.get(checkpoint.checked):
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

    uri = digests.check_uri(_absolute(uri))
    with progress_of_bytes("reading") as progress:
        files = digests.digest_files(uri, load_settings(data), progress)
    if files.digest is None:
        raise InvalidInput(what=uri, why=files.why)
    document = {"uri": uri, "digest": files.digest, "bytes": files.bytes}
    show_json(document) if json else show_text(files.digest)


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
        checkpoints = list_checkpoints(lake.database, tenant, state=state)
    if json:
        show_json([facts(checkpoint) for checkpoint in checkpoints])
        return
    columns = {name: name for name in ("name", "state", "form", "parent", "digest", "checked")}
    columns |= {"registered_at": "registered (UTC)", "registered_by": "by"}
    rows = [vars(each) | {"registered_at": time_of(each.registered_at)} for each in checkpoints]
    show_table([*columns.values()], [[row[name] for name in columns] for row in rows])


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
        line = lineage(lake.database, tenant, name)
    moves = [facts(move) | {"at": time_of(move.at)} for move in line.moves]
    document = facts(line.checkpoint)
    if json:
        show_json(document | {"moves": [move | {"at": move["at"].isoformat()} for move in moves]})
        return
    show_table(["what", "value"], [pair for pair in document.items() if pair[1] is not None])
    columns = {"at": "when (UTC)", "from_state": "from", "to_state": "to", "actor": "who"}
    columns |= {"reason": "why"}
    show_table([*columns.values()], [[move[name] for name in columns] for move in moves])


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
        checkpoint = registration.withdraw(
            lake.database, tenant=tenant, name=name, reason=reason, actor=actor(by)
        )
    show_json(facts(checkpoint)) if json else say(f"{checkpoint.name} is withdrawn")


def _absolute(uri: str) -> str:
    """What somebody names on the command line may be relative to where they are."""
    return uri if ":" in uri.split("/", 1)[0] else str(Path(uri).absolute())
