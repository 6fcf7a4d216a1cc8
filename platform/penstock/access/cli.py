"""`penstock keys` and `penstock quotas`."""

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.access import QuotaName, Role
from penstock.audit.entry import Action
from penstock.clock import SystemClock
from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import open_desk
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import (
    facts,
    prompt_secret,
    say,
    say_more,
    show_json,
    show_table,
    show_text,
)

if TYPE_CHECKING:
    from penstock.access.calls import CreatedKey


app = typer.Typer(help="Keys for the HTTP service.", no_args_is_help=True)


@app.command("create")
def create(
    role: Annotated[Role, typer.Option(help="What the key allows; admin allows all.")],
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: Annotated[str, typer.Option(help="Whose events it sends and reads.")] = TENANT_DEFAULT,
    *,
    note: Annotated[str, typer.Option(help="Who has it, and what for.")] = "",
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When: 90d from now, or a time; never without it."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Create a key. Its secret is shown now and never again.

    Example: penstock keys create --role ingest --note "editor fleet" --expires 90d
    """
    from penstock.access.calls import CREATE_KEY, CreateKey

    expires_at = options.expires_us(expires) if expires is not None else None
    with open_desk(data, url, tenant, make=True) as desk:
        terms = CreateKey(role=role, note=note, expires_at=expires_at)
        key = desk.ask(CREATE_KEY, terms)
    _show_created(key, json=json)


def _show_created(key: "CreatedKey", *, json: bool) -> None:
    if json:
        show_json(key)
        return
    at = datetime.fromisoformat(key.expires_at) if key.expires_at else None
    until = f", until {at:%Y-%m-%d %H:%M} UTC" if at else ""
    say(f"key {key.id}, role {key.role}, tenant {key.tenant}{until}; its secret, shown this once:")
    show_text(key.secret)


@app.command("rotate")
def rotate(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="From `penstock keys list`.")],
    data: options.DeskData = None,
    url: options.Url = None,
    *,
    old_works: Annotated[
        str,
        typer.Option("--old-works", metavar="TIME", help="How long the old key still works."),
    ] = "24h",
    json: options.Json = False,
) -> None:
    """Make another key in place of one, which works for a while yet: its clients take the new one
    meanwhile, and none is refused. The new one is good for as long as the old one was made for.

    Example: penstock keys rotate 1f0c2a9b --old-works 7d
    """
    from penstock.access.calls import ROTATE_KEY, RotateKey

    old_until = options.expires_us(old_works, "--old-works")
    with open_desk(data, url) as desk:
        key = desk.ask(ROTATE_KEY, RotateKey(id=key_id, old_until=old_until))
    _show_created(key, json=json)


@app.command("list")
def list_(
    *,
    data: options.DeskData = None,
    url: options.Url = None,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """All keys, without their secrets.

    Example: penstock keys list
    """
    from penstock.access.calls import LIST_KEYS, KeysQuestion

    with open_desk(data, url) as desk:
        page = desk.ask(LIST_KEYS, KeysQuestion(limit=limit, cursor=cursor))
    say_more(page.next)
    if json:
        show_json(page.keys)
        return
    rows: list[list[object]] = []
    for key in page.keys:
        created, expires, revoked = (
            datetime.fromisoformat(at) if at else None
            for at in (key.created_at, key.expires_at, key.revoked_at)
        )
        rows.append([key.id, key.tenant, key.role, created, expires, revoked, key.note])
    times = ["created (UTC)", "expires (UTC)", "revoked (UTC)"]
    show_table(["id", "tenant", "role", *times, "note"], rows)


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="From `penstock keys list`.")],
    data: options.DeskData = None,
    url: options.Url = None,
    json: options.Json = False,
) -> None:
    """Revoke a key. Servers notice within seconds.

    Example: penstock keys revoke 1f0c2a9b
    """
    from penstock.access.calls import REVOKE_KEY, RevokeKey

    with open_desk(data, url) as desk:
        desk.ask(REVOKE_KEY, RevokeKey(id=key_id))
    show_json({"revoked": key_id}) if json else say(f"key {key_id} is revoked")


quotas_app = typer.Typer(help="What each tenant may use.", no_args_is_help=True)


@quotas_app.command("list")
def list_quotas(data: options.Data = None, json: options.Json = False) -> None:
    """What each tenant has used, and may use. No maximum is no limit.

    Example: penstock quotas list
    """
    from penstock.access.quotas import survey_quotas

    with open_existing(data) as lake:
        uses = survey_quotas(lake.database, lake.settings, SystemClock())
    if json:
        show_json([facts(use) for use in uses])
        return
    rows = [[use.tenant, use.name, use.used, use.maximum] for use in uses]
    show_table(["tenant", "quota", "used", "maximum"], rows)


@quotas_app.command("set")
def set_(
    tenant: Annotated[str, typer.Argument(help="Whose quota.")],
    name: Annotated[QuotaName, typer.Argument(help="Which quota.")],
    maximum: Annotated[
        int | None, typer.Argument(help="0 is no limit; left out, that of the settings.", min=0)
    ] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Give one tenant a maximum of its own. A running service follows within seconds.

    Example: penstock quotas set acme events_per_hour 1000000
    """
    from penstock.access.quotas import set_quota

    with open_existing(data) as lake:
        set_quota(lake.database, tenant, name, maximum, by=options.actor(None))
    if json:
        show_json({"tenant": tenant, "quota": name, "maximum": maximum})
        return
    limit = "that of the settings" if maximum is None else maximum or "no limit"
    say(f"{tenant}: {name} is {limit}")


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as https://penstock.example.com")],
    json: options.Json = False,
) -> None:
    """Keep the address of a service and a key for it: commands ask it from now on.

    The key is that of PENSTOCK_KEY, else it is asked for, or read from a pipe. It is tried, and
    kept in a file that is yours alone.

    Example: penstock login https://penstock.example.com
    """
    from penstock.access.calls import SHOW_GRANT, GrantQuestion
    from penstock.http.address import is_loopback
    from penstock.http.login import Login, keep_login
    from penstock.lake.desk import open_desk

    key = os.environ.get("PENSTOCK_KEY", "").strip() or _asked_key(url)
    with open_desk(None, url, key=key) as desk:
        grant = desk.ask(SHOW_GRANT, GrantQuestion())
    path = keep_login(Login(url, key))
    if json:
        show_json({"url": url, "tenant": grant.tenant, "actor": grant.actor, "file": str(path)})
        return
    admin = ", an admin's" if grant.admin else ""
    say(f"Commands ask {url} from now on, by {grant.actor} of the tenant {grant.tenant}{admin}.")
    say(f"The key is in {path}; `penstock logout` removes it.")
    if url.startswith("http://") and not is_loopback(url):
        say("The key and all rows go there unencrypted: name https:// where the service has it.")


def _asked_key(url: str) -> str:
    key = (
        prompt_secret(f"Key for {url}: ") if sys.stdin.isatty() else sys.stdin.readline(4096)
    ).strip()
    if not key or not key.isascii() or not key.isprintable():
        why = "there is none" if not key else "there are characters in it that no key has"
        raise InvalidInput(what="The key", why=why)
    return key


def logout(json: options.Json = False) -> None:
    """Forget the service of `penstock login`, and its key.

    Example: penstock logout
    """
    from penstock.http.login import forget_login

    known = forget_login()
    if json:
        show_json({"forgotten": known})
    else:
        say("The login is forgotten." if known else "There was no login.")


audit_app = typer.Typer(
    help="Who did what, and whether anybody changed that.", no_args_is_help=True
)


@audit_app.command("list")
def list_entries(
    action: Annotated[Action | None, typer.Option(help="Only what was done so.")] = None,
    actor: Annotated[
        str | None, typer.Option(help='Only by this key or user, such as "key 1f0c2a9b".')
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help='Only to this, such as "channel production".')
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only to this session: entries have digests.")
    ] = None,
    *,
    limit: Annotated[int, typer.Option(help="So many, the newest first.", min=1, max=1000)] = 100,
    cursor: Annotated[str | None, typer.Option(help="The `next` of a page before.")] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What was done, the newest first, tenant by tenant.

    Example: penstock audit list --action promote
    """
    from penstock.access.audit_calls import LIST_ENTRIES, EntriesQuestion
    from penstock.audit.entry import person_digest

    if session is not None:
        subject = person_digest(tenant, "session", session)
    wanted = EntriesQuestion(
        action=action, actor=actor, subject=subject, limit=limit, cursor=cursor
    )
    with open_desk(data, url, tenant) as desk:
        answer = desk.ask(LIST_ENTRIES, wanted)
    if json:
        show_json(answer)
        return
    names = ["number", "at", "tenant", "actor", "action", "subject", "facts"]
    rows: list[list[object]] = []
    for entry in answer.entries:
        row: list[object] = [getattr(entry, name) for name in names]
        rows.append([row[0], datetime.fromisoformat(entry.at), *row[2:]])
    show_table(["number", "at (UTC)", *names[2:]], rows)
    if answer.next is not None:
        say(f"More: --cursor {answer.next!r}")


@audit_app.command("verify")
def verify(
    head: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="A head that you noted: it has to be in there."),
    ] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Whether any entry was changed, removed, put in or moved; exit status 1 if so.

    Whoever can write into the database can also make a whole chain anew. Keep the head that is
    shown somewhere else, and name it with --head the next time; the service logs it every minute.

    Example: penstock audit verify
    """
    from penstock.access.audit_calls import VERIFY_AUDIT, VerifyQuestion

    with open_desk(data, url, tenant) as desk:
        chains = desk.ask(VERIFY_AUDIT, VerifyQuestion(head=head)).chains
    flawed = [chain for chain in chains if chain.flaw is not None]
    if json:
        show_json(chains)
    else:
        for chain in chains:
            name = chain.tenant or "(the service)"
            if chain.flaw is None:
                say(f"{name}: {chain.number} entries as written; head {chain.number}:{chain.hash}")
            else:
                say(f"{name}: entry {chain.flaw} is not as it was written: {chain.why}")
    if flawed:
        raise typer.Exit(1)
