"""`penstock login` and `penstock logout`."""

import os
import sys
from typing import Annotated

import typer

from penstock.errors import InvalidInput
from penstock.terminal import options
from penstock.terminal.output import prompt_secret, say, show_json


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
