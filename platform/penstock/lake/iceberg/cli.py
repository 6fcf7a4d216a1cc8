"""`penstock iceberg`."""

from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.backends.terminal.output import say, show_rows
from penstock.lake.commands import command
from penstock.lake.lake import Lake

app = typer.Typer(help="Tables of Apache Iceberg over the lake.", no_args_is_help=True)

OneTenant = Annotated[str | None, typer.Option(help="Publish this tenant's table alone.")]


@app.command("publish")
@command()
def publish_tables(lake: Lake, tenant: OneTenant = None) -> Iterator[object]:
    """Bring the Iceberg tables in step with the segments of their tenants.

    Example: penstock iceberg publish
    """
    from penstock.lake.iceberg.publication import publish, tenants_due

    tenants = tenants_due(lake) if tenant is None else [tenant]
    published = [publish(lake, each) for each in tenants]
    yield {"published": published}
    for table in published:
        say(f"{table.tenant}: {table.rows} events in {table.files} files ({table.metadata})")
    if not published:
        say("every table is in step")


@app.command()
@command()
def show(lake: Lake) -> Iterator[object]:
    """List the tables, their state, and the metadata that engines without a catalog read.

    Example: penstock iceberg show
    """
    from penstock.lake.iceberg.publication import list_published

    tables = list_published(lake)
    yield {"tables": tables}
    titles = {"rows": "events", "published_at": "published (UTC)", "is_behind": "behind"}
    show_rows(tables, "tenant", "files", **titles, metadata="metadata")


@app.command()
@command()
def drop(
    lake: Lake, tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose table.")]
) -> Iterator[object]:
    """Remove the Iceberg table of a tenant. Its events stay in the lake.

    Example: penstock iceberg drop acme
    """
    from penstock.lake.iceberg.publication import withdraw

    dropped = withdraw(lake, tenant)
    yield {"dropped": dropped}
    say("dropped" if dropped else "there was no table")
