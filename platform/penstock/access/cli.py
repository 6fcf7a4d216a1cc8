"""`penstock keys`, `penstock quotas`, `penstock login` and `penstock audit`."""

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from penstock.access import QuotaName
from penstock.access.audit_endpoints import (
    LIST_ENTRIES,
    VERIFY_AUDIT,
    EntriesRequest,
    VerifyRequest,
)
from penstock.access.endpoints import (
    CREATE_KEY,
    LIST_KEYS,
    REVOKE_KEY,
    ROTATE_KEY,
    SHOW_GRANT,
    CreatedKey,
    GrantRequest,
    KeyRevoked,
    KeysAnswer,
)
from penstock.backends.audit.entry import Action
from penstock.backends.terminal import options
from penstock.backends.terminal.output import facts, prompt_secret, say, show_rows, show_text
from penstock.core.clock import SystemClock
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client
from penstock.lake.commands import Outcome, asks, command
from penstock.lake.lake import Lake

app = typer.Typer(help="Keys for the HTTP service.", no_args_is_help=True)


@app.command()
@asks(CREATE_KEY, make=True)
def create(key: CreatedKey) -> None:
    """Create a key. Its secret is shown now and never again.

    Example: penstock keys create --role ingest --note "editor fleet" --expires 90d
    """
    _show_created(key)


@app.command()
@asks(ROTATE_KEY, tenant=False)
def rotate(key: CreatedKey) -> None:
    """Make another key in place of one, which works for a while yet: its clients take the new one
    meanwhile, and none is refused. The new one is good for as long as the old one was made for.

    Example: penstock keys rotate 1f0c2a9b --old-works 7d
    """
    _show_created(key)


def _show_created(key: CreatedKey) -> None:
    at = datetime.fromisoformat(key.expires_at) if key.expires_at else None
    until = f", until {at:%Y-%m-%d %H:%M} UTC" if at else ""
    say(f"key {key.id}, role {key.role}, tenant {key.tenant}{until}; its secret, shown this once:")
    show_text(key.secret)


@app.command("list")
@asks(LIST_KEYS, tenant=False)
def list_(page: KeysAnswer) -> None:
    """All keys, without their secrets.

    Example: penstock keys list
    """
    times = ("created_at", "expires_at", "revoked_at")
    show_rows(page.keys, "id", "tenant", "role", *times, "note")


@app.command()
@asks(REVOKE_KEY, tenant=False)
def revoke(answer: KeyRevoked) -> None:
    """Revoke a key. Servers notice within seconds.

    Example: penstock keys revoke 1f0c2a9b
    """
    say(f"key {answer.revoked} is revoked")


quotas_app = typer.Typer(help="What each tenant may use.", no_args_is_help=True)


@quotas_app.command("list")
@command()
def list_quotas(lake: Lake) -> Iterator[object]:
    """What each tenant has used, and may use. No maximum is no limit.

    Example: penstock quotas list
    """
    from penstock.access.quotas import survey_quotas

    uses = survey_quotas(lake.database, lake.settings, SystemClock())
    yield [facts(use) for use in uses]
    show_rows(uses, "tenant", "name", "used", "maximum")


@quotas_app.command("set")
@command()
def set_(
    lake: Lake,
    tenant: Annotated[str, typer.Argument(help="Whose quota.")],
    name: Annotated[QuotaName, typer.Argument(help="Which quota.")],
    maximum: Annotated[
        int | None, typer.Argument(help="0 is no limit; left out, that of the settings.", min=0)
    ] = None,
) -> Iterator[object]:
    """Give one tenant a maximum of its own. A running service follows within seconds.

    Example: penstock quotas set acme events_per_hour 1000000
    """
    from penstock.access.quotas import set_quota

    set_quota(lake.database, tenant, name, maximum, by=options.actor(None))
    yield {"tenant": tenant, "quota": name, "maximum": maximum}
    limit = "that of the settings" if maximum is None else maximum or "no limit"
    say(f"{tenant}: {name} is {limit}")


@command()
def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as https://penstock.example.com")],
) -> Iterator[object]:
    """Keep the address of a service and a key for it: commands ask it from now on.

    The key is that of PENSTOCK_KEY, else it is asked for, or read from a pipe. It is tried, and
    kept in a file that is yours alone.

    Example: penstock login https://penstock.example.com
    """
    from penstock.backends.http.address import is_loopback
    from penstock.backends.http.login import Login, keep_login

    key = os.environ.get("PENSTOCK_KEY", "").strip() or _asked_key(url)
    with open_client(None, url, key=key) as client:
        grant = client.call(SHOW_GRANT, GrantRequest())
    path = keep_login(Login(url, key))
    yield {"url": url, "tenant": grant.tenant, "actor": grant.actor, "file": str(path)}
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


@command()
def logout() -> Iterator[object]:
    """Forget the service of `penstock login`, and its key.

    Example: penstock logout
    """
    from penstock.backends.http.login import forget_login

    known = forget_login()
    yield {"forgotten": known}
    say("The login is forgotten." if known else "There was no login.")


audit_app = typer.Typer(
    help="Who did what, and whether anybody changed that.", no_args_is_help=True
)


@audit_app.command("list")
@command()
def list_entries(
    client: Client,
    *,
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
    limit: Annotated[int, typer.Option(help="So many, the newest first.", min=1, max=1000)] = 100,
    cursor: Annotated[str | None, typer.Option(help="The `next` of a page before.")] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """What was done, the newest first, tenant by tenant.

    Example: penstock audit list --action promote
    """
    from penstock.backends.audit.entry import person_digest

    if session is not None:
        subject = person_digest(tenant, "session", session)
    wanted = EntriesRequest(action=action, actor=actor, subject=subject, limit=limit, cursor=cursor)
    answer = client.call(LIST_ENTRIES, wanted)
    yield answer
    show_rows(answer.entries, "number", "at", "tenant", "actor", "action", "subject", "facts")
    if answer.next is not None:
        say(f"More: --cursor {answer.next!r}")


@audit_app.command()
@command()
def verify(
    client: Client,
    head: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="A head that you noted: it has to be in there."),
    ] = None,
) -> Iterator[object]:
    """Whether any entry was changed, removed, put in or moved; exit status 1 if so.

    Whoever can write into the database can also make a whole chain anew. Keep the head that is
    shown somewhere else, and name it with --head the next time; the service logs it every minute.

    Example: penstock audit verify
    """
    chains = client.call(VERIFY_AUDIT, VerifyRequest(head=head)).chains
    yield Outcome(chains, failed=any(chain.flaw is not None for chain in chains))
    for chain in chains:
        name = chain.tenant or "(the service)"
        if chain.flaw is None:
            say(f"{name}: {chain.number} entries as written; head {chain.number}:{chain.hash}")
        else:
            say(f"{name}: entry {chain.flaw} is not as it was written: {chain.why}")
