"""`penstock iceberg`."""

from typing import Annotated

import typer

from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table, time_of

app = typer.Typer(help="Tables of Apache Iceberg over the lake.", no_args_is_help=True)

OneTenant = Annotated[str | None, typer.Option(help="Of this tenant alone.")]


@app.command("publish")
def publish_tables(
    data: options.Data = None, tenant: OneTenant = None, json: options.Json = False
) -> None:
    """Bring the Iceberg tables in step with the segments of their tenants.

    Example: penstock iceberg publish
    """
    from penstock.iceberg.publication import publish, tenants_due

    with open_existing(data) as lake:
        tenants = tenants_due(lake) if tenant is None else [tenant]
        published = [publish(lake, each) for each in tenants]
    if json:
        show_json({"published": published})
        return
    for table in published:
        say(f"{table.tenant}: {table.rows} events in {table.files} files ({table.metadata})")
    if not published:
        say("every table is in step")


@app.command("show")
def show(data: options.Data = None, json: options.Json = False) -> None:
    """List the tables, how far they are, and where engines without a catalog find them.

    Example: penstock iceberg show
    """
    from penstock.iceberg.publication import list_published

    with open_existing(data) as lake:
        tables = list_published(lake)
    if json:
        show_json({"tables": tables})
        return
    rows: list[list[object]] = [
        [
            table.tenant,
            table.files,
            table.rows,
            time_of(table.published_at),
            "behind" if table.is_behind else "in step",
            table.metadata,
        ]
        for table in tables
    ]
    show_table(["tenant", "files", "events", "published (UTC)", "state", "metadata"], rows)


@app.command("drop")
def drop(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose table.")],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Remove the Iceberg table of a tenant. Its events stay in the lake.

    Example: penstock iceberg drop acme
    """
    from penstock.iceberg.publication import withdraw

    with open_existing(data) as lake:
        dropped = withdraw(lake, tenant)
    show_json({"dropped": dropped}) if json else say("dropped" if dropped else "there was no table")
