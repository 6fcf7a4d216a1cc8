"""`penstock keys`."""

from typing import Annotated

import typer

from penstock.access.keys import Role, create_key, list_keys, revoke_key
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing, open_or_make
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table, time_of

app = typer.Typer(help="Keys for the HTTP service.", no_args_is_help=True)


@app.command("create")
def create(
    role: Annotated[Role, typer.Option(help="What the key allows; admin allows all.")],
    data: options.Data = None,
    tenant: Annotated[str, typer.Option(help="Whose events it sends and reads.")] = TENANT_DEFAULT,
    note: Annotated[str, typer.Option(help="Who has it, and what for.")] = "",
    json: options.Json = False,
) -> None:
    """Create a key. Its secret is shown now and never again.

    Example: penstock keys create --role ingest --note "editor fleet"
    """
    with open_or_make(load_settings(data)) as lake:
        key, secret = create_key(lake.database, role, tenant, note)
    if json:
        show_json(facts(key) | {"secret": secret})
        return
    say(f"key {key.id}, role {key.role}, tenant {key.tenant}; its secret, shown this once:")
    typer.echo(secret)


@app.command("list")
def list_(data: options.Data = None, json: options.Json = False) -> None:
    """All keys, without their secrets.

    Example: penstock keys list
    """
    with open_existing(data) as lake:
        keys = list_keys(lake.database)
    if json:
        show_json([facts(key) for key in keys])
        return
    rows = []
    for key in keys:
        revoked = time_of(key.revoked_at) if key.revoked_at else None
        rows.append([key.id, key.tenant, key.role, time_of(key.created_at), revoked, key.note])
    show_table(["id", "tenant", "role", "created (UTC)", "revoked (UTC)", "note"], rows)


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="From `penstock keys list`.")],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Revoke a key. Servers notice within seconds.

    Example: penstock keys revoke 1f0c2a9b
    """
    with open_existing(data) as lake:
        revoke_key(lake.database, key_id)
    show_json({"revoked": key_id}) if json else say(f"key {key_id} is revoked")
