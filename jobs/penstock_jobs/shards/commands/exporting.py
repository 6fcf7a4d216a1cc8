"""`penstock shards export`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json
from penstock_jobs.shards.commands.looking import Shard


def export(
    shard: Shard,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="For what; a wrong name lists them.")
    ],
    out: Annotated[
        Path, typer.Option("--out", parser=options.path, metavar="DIR", help="A new directory.")
    ],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Write a shard in the form of another stack.

    What that form cannot hold is left out, and counted.

    Example: penstock shards export sft-persistent --to trl-sft --out sft
    """
    from penstock.shards.manifest import read_manifest
    from penstock_jobs.shards import exporting
    from penstock_jobs.shards.registering import find_shard, mark_consent, marks_of

    with open_existing(data) as lake:
        known = find_shard(lake.database, tenant, shard)
        mark_consent(lake)
        marked = len({session for session, _ in marks_of(lake.database, known.id)})
        done = exporting.export(lake.store, read_manifest(lake.store, known.id), to, out)
    if marked:
        say(f"{marked} sessions in it should be there no more: build it anew before training on it")
    if json:
        show_json(done)
        return
    say(f"{done.rows} rows of {known.id} for {done.written_for}")
    for reason, count in sorted(done.left_out.items()):
        say(f"left out: {reason} {count}")
    for name in done.files:
        typer.echo(str(out / name))
