"""`penstock keys`, `penstock quotas`, `penstock login` and `penstock audit`."""

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from penstock.access import QuotaName
from penstock.access.endpoints import (
    CREATE_KEY,
    LIST_ENTRIES,
    LIST_KEYS,
    REVOKE_KEY,
    ROTATE_KEY,
    SHOW_GRANT,
    VERIFY_AUDIT,
    CreatedKey,
    EntriesRequest,
    GrantRequest,
    KeyRevoked,
    KeysAnswer,
    VerifyRequest,
)
from penstock.backends.audit.entry import UNSIGNED, Action
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
    """Create a key. Its secret is shown only now.

    Example: penstock keys create --role ingest --note "editor fleet" --expires 90d
    """
    _show_created(key)


@app.command()
@asks(ROTATE_KEY, tenant=False)
def rotate(key: CreatedKey) -> None:
    """Replace a key. The old one works for a while yet, so clients can change without a refusal.
    The new one is valid for as long as the old one was made for.

    Example: penstock keys rotate 1f0c2a9b --old-works 7d
    """
    _show_created(key)


def _show_created(key: CreatedKey) -> None:
    at = datetime.fromisoformat(key.expires_at) if key.expires_at else None
    until = f", until {at:%Y-%m-%d %H:%M} UTC" if at else ""
    say(f"key {key.id}, role {key.role}, tenant {key.tenant}{until}; its secret, shown only now:")
    show_text(key.secret)


@app.command("list")
@asks(LIST_KEYS, tenant=False)
def list_(page: KeysAnswer) -> None:
    """List all keys, without their secrets.

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
    say(f"key {answer.revoked} was revoked")


quotas_app = typer.Typer(help="What each tenant may use.", no_args_is_help=True)


@quotas_app.command("list")
@command()
def list_quotas(lake: Lake) -> Iterator[object]:
    """List what each tenant has used and may use. Without a maximum there is no limit.

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
        int | None,
        typer.Argument(help="0 for no limit; omit it for the default of the settings.", min=0),
    ] = None,
) -> Iterator[object]:
    """Set a tenant's own maximum. Running services follow within seconds.

    Example: penstock quotas set acme events_per_hour 1000000
    """
    from penstock.access.quotas import set_quota

    set_quota(lake.database, tenant, name, maximum, by=options.actor(None))
    yield {"tenant": tenant, "quota": name, "maximum": maximum}
    limit = "that of the settings" if maximum is None else maximum or "no limit"
    say(f"{tenant}: {name} is {limit}")


@command()
def login(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The address, such as https://penstock.example.com")
    ],
) -> Iterator[object]:
    """Store the address of a service and a key for it. Later commands ask this service.

    The key comes from PENSTOCK_KEY, a prompt or a pipe. It is tried first, then stored in a file
    that only you can read.

    Example: penstock login https://penstock.example.com
    """
    from penstock.backends.http.address import HttpAddress, is_loopback
    from penstock.backends.http.login import Login, keep_login

    key = os.environ.get("PENSTOCK_KEY", "").strip() or _asked_key(url)
    with open_client(None, url, key=key) as client:
        grant = client.call(SHOW_GRANT, GrantRequest())
    path = keep_login(Login(url, key))
    yield {"url": url, "tenant": grant.tenant, "actor": grant.actor, "file": str(path)}
    admin = ", an admin's" if grant.admin else ""
    say(f"Commands ask {url} from now on, by {grant.actor} of the tenant {grant.tenant}{admin}.")
    say(f"The key is in {path}; `penstock logout` removes it.")
    address = HttpAddress.of(url, "The address")
    if not address.secure and not is_loopback(address.host):
        say("The key and all data are sent unencrypted: use https:// if the service offers it.")


def _asked_key(url: str) -> str:
    key = (
        prompt_secret(f"Key for {url}: ") if sys.stdin.isatty() else sys.stdin.readline(4096)
    ).strip()
    if not key or not key.isascii() or not key.isprintable():
        why = "there is none" if not key else "it contains characters that no key has"
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
    help="Who did what, and whether the record was altered.", no_args_is_help=True
)


@audit_app.command("list")
@command()
def list_entries(
    client: Client,
    *,
    action: Annotated[Action | None, typer.Option(help="Only this action.")] = None,
    actor: Annotated[
        str | None, typer.Option(help='Only by this key or user, such as "key 1f0c2a9b".')
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help='Only this subject, such as "channel production".')
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only this session, which entries name by a digest."),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="The number of entries, the newest first.", min=1, max=1000)
    ] = 100,
    cursor: Annotated[str | None, typer.Option(help="The `next` of the previous page.")] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """List what was done, the newest first, tenant by tenant.

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
        typer.Option(
            metavar="NUMBER:HASH",
            help="A head that you noted earlier; it must still be in the audit.",
        ),
    ] = None,
) -> Iterator[object]:
    """Verify that no entry was changed, removed, added or moved; exit 1 otherwise.

    Whoever can write to the database could also forge a whole new chain. Note the printed head
    elsewhere, and pass it with --head next time; the service logs it every minute.

    Example: penstock audit verify
    """
    chains = client.call(VERIFY_AUDIT, VerifyRequest(head=head)).chains
    yield Outcome(chains, failed=any(chain.flaw is not None for chain in chains))
    for chain in chains:
        name = chain.tenant or "(the service)"
        if flaw := chain.flaw:
            say(f"{name}: entry {flaw.number} was altered: {flaw.why}")
        else:
            state = "unaltered" if chain.signed else "unsigned"
            say(f"{name}: {chain.number} entries, {state}; head {chain.number}:{chain.hash}")
    if not all(chain.signed for chain in chains):
        say(f"They are {UNSIGNED}.")


@audit_app.command()
@command()
def sign(lake: Lake) -> Iterator[object]:
    """Sign the audit, histories of channels and journals that no key of the lake has signed.

    Needed once, after a key was named with PENSTOCK_SIGNING_KEY_FILE or was lost. What was altered
    before cannot be told from what was not: look at it first.

    Example: penstock audit sign
    """
    from penstock.backends.audit.chain import append
    from penstock.backends.audit.entry import NO_TENANT, Deed
    from penstock.backends.audit.hash_chain import sign_heads

    if not lake.database.signs:
        raise InvalidInput(what="This lake", why=f"it is {UNSIGNED}")
    with lake.database.write() as connection:
        count = sign_heads(connection)
        deed = Deed(NO_TENANT, options.actor(None), "sign", "chains", {"chains": count})
        append(connection, deed)
    yield {"signed": count}
    say(f"{count} chains are signed")
