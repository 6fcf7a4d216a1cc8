"""Whether a form was sent from this console: decided from the request's headers, its cookie and the
field that the page put into the form."""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from penstock.console.errors import RequestForged

#: The field of each form that changes something.
FIELD = "form_proof"


def form_proof(cookie: str) -> str:
    """What stands in the forms of whoever has this cookie. Other sites know neither."""
    return hashlib.sha256(b"form\0" + cookie.encode()).hexdigest()


def require_own_form(headers: Mapping[str, str], cookie: str | None, proof: str) -> None:
    """Raises RequestForged. Browsers say where a form comes from by Sec-Fetch-Site, and by Origin
    on connections that they do not trust; a page without referrer has the origin null there."""
    if (site := headers.get("sec-fetch-site")) not in (None, "same-origin"):
        raise RequestForged(why=f"the browser says that it comes from a {site} page")
    origin = headers.get("origin")
    if origin not in (None, "null") and urlsplit(origin).netloc != headers.get("host"):
        raise RequestForged(why="the browser says that it comes from another address")
    if not cookie:
        raise RequestForged(why="the browser sent no cookie of this console with it")
    if not hmac.compare_digest(form_proof(cookie).encode(), proof.encode()):
        raise RequestForged(why="it is of another session, or older than this one")
