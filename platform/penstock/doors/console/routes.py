"""The routes of the console: pages of all rooms, signing in and out, and errors as pages."""

import asyncio
import secrets
from http import HTTPStatus
from typing import Any

import structlog
from litestar import Request, Response, get, post
from litestar.exceptions import HTTPException, NotFoundException
from litestar.handlers import HTTPRouteHandler

from penstock.access import ROLES
from penstock.access.keys import Grant
from penstock.backends.http import ClientGone
from penstock.backends.http.problems import current_request
from penstock.core.errors import PenstockError, one_line
from penstock.doors.console.console import (
    Console,
    cookie_name,
    html_response,
    is_fragment,
    own_path,
    path_of,
    read_form,
    redirect_to,
    set_cookie,
)
from penstock.doors.console.figures import url
from penstock.doors.console.page import ConsolePage, PageFrame, all_pages, get_asset
from penstock.doors.console.sign_in import (
    FIELD,
    SESSION_SECONDS_MAX,
    OpenIdProvider,
    SignInNeeded,
    SignInRefused,
    new_challenge,
    read_challenge,
    require_own_form,
)

log_line = structlog.get_logger()

AnyRequest = Request[Any, Any, Any]
_FORM_SECONDS = 3600
_PROVIDER_SECONDS = 600
_TOKEN_BYTES = 24


def console_routes() -> list[HTTPRouteHandler]:
    own = [get_sign_in, post_sign_in, get_provider, get_provider_answer, post_sign_out, get_asset]
    return [*map(_route_of, all_pages()), *own]


def on_console_error(request: AnyRequest, error: PenstockError) -> Response[Any]:
    if isinstance(error, SignInNeeded) and request.method == "GET" and not is_fragment(request):
        path = path_of(request)
        return redirect_to(url("/sign-in", next=path if path != "/" else ""))
    text = one_line(error)
    what, _, rest = text.partition(". ")
    return _error_page(request, error.http_status, what.rstrip(".") + ".", rest)


def on_console_http_error(request: AnyRequest, error: HTTPException) -> Response[Any]:
    what = "There is nothing at this address." if error.status_code == 404 else str(error.detail)
    return _error_page(request, error.status_code, what, "")


def on_unexpected_console_error(request: AnyRequest, error: Exception) -> Response[Any]:
    log_line.error("request failed", path=request.url.path, exc_info=error)
    return _error_page(request, 500, "The service failed.", "Its log holds the error.")


def _error_page(request: AnyRequest, status: int, what: str, to_do: str) -> Response[Any]:
    facts = current_request()
    phrase = "Client gone" if status == ClientGone.http_status else HTTPStatus(status).phrase
    content = {"status": status, "phrase": phrase, "what": what, "to_do": to_do}
    content |= {"request_id": facts.id if facts is not None else ""}
    visitor = getattr(request.state, "visitor", None)
    cookie = getattr(request.state, "cookie", "")
    frame = PageFrame(phrase, "/", visitor, cookie=cookie, fragment=is_fragment(request))
    return html_response(frame.render("error.html.jinja", content), status)


_ON_ERRORS: dict[Any, Any] = {
    PenstockError: on_console_error,
    HTTPException: on_console_http_error,
    Exception: on_unexpected_console_error,
}


def _route_of(page: ConsolePage[Any]) -> HTTPRouteHandler:
    async def show_page(request: AnyRequest, console: Console) -> Response[Any]:
        return await console.show(page, request)

    handler = post if page.method == "POST" else get
    # Pages write paths as endpoints do.
    path = page.path.replace("}", ":str}").replace(":path:str}", ":path}")
    made: HTTPRouteHandler = handler(
        path, status_code=200, include_in_schema=False, exception_handlers=_ON_ERRORS
    )(show_page)
    return made


# Signing in


def _sign_in_page(
    request: AnyRequest, console: Console, next_path: str, problem: str = "", status: int = 200
) -> Response[Any]:
    name = cookie_name(request, "form")
    cookie = request.cookies.get(name) or secrets.token_urlsafe(_TOKEN_BYTES)
    frame = PageFrame("Sign in", "/sign-in", cookie=cookie)
    content = {"next_path": next_path, "problem": problem, "provider": console.provider}
    response = html_response(frame.render("sign_in.html.jinja", content), status)
    set_cookie(response, request, "form", cookie, _FORM_SECONDS)
    return response


@get("/sign-in", include_in_schema=False, exception_handlers=_ON_ERRORS, sync_to_thread=False)
def get_sign_in(request: AnyRequest, console: Console) -> Response[Any]:
    return _sign_in_page(request, console, own_path(request.query_params.get("next", "/")))


@post("/sign-in", status_code=200, include_in_schema=False, exception_handlers=_ON_ERRORS)
async def post_sign_in(request: AnyRequest, console: Console) -> Response[Any]:
    fields = await _read_fields(request)
    cookie = request.cookies.get(cookie_name(request, "form"))
    next_path = own_path(fields.get("next", "/"))
    try:
        require_own_form(request.headers, cookie, fields.get(FIELD, ""))
        grant = await _shown_grant(console, fields)
    except PenstockError as error:
        problem = one_line(error)
        return _sign_in_page(request, console, next_path, problem, error.http_status)
    token = await asyncio.to_thread(console.sessions.open, grant)
    response = redirect_to(next_path)
    set_cookie(response, request, "session", token, SESSION_SECONDS_MAX)
    return response


async def _shown_grant(console: Console, fields: dict[str, str]) -> Grant:
    if link := fields.get("link"):
        return await console.authorizer.grant_of_key(console.links.use(link))
    # Any key may sign in: each page checks its own roles.
    key = fields.get("key", "").strip()
    return await console.authorizer.authorize(f"Bearer {key}", *ROLES)


@get("/sign-in/provider", include_in_schema=False, exception_handlers=_ON_ERRORS)
async def get_provider(request: AnyRequest, console: Console) -> Response[Any]:
    if console.provider is None:
        raise NotFoundException
    challenge = new_challenge(own_path(request.query_params.get("next", "/")))
    redirect_url = _redirect_url(request, console.provider)
    url_there = await asyncio.to_thread(console.provider.authorization_url, challenge, redirect_url)
    response = redirect_to(url_there)
    value = challenge.text
    set_cookie(response, request, "oidc", value, _PROVIDER_SECONDS, from_elsewhere=True)
    return response


@get("/sign-in/oidc", include_in_schema=False, exception_handlers=_ON_ERRORS)
async def get_provider_answer(request: AnyRequest, console: Console) -> Response[Any]:
    """Finish a sign-in, and continue from a page of this console: browsers send the session's
    cookie only from there."""
    if console.provider is None:
        raise NotFoundException
    asked = request.query_params
    challenge = read_challenge(
        request.cookies.get(cookie_name(request, "oidc"), ""), asked.get("state", "")
    )
    if (code := asked.get("code")) is None:
        why = asked.get("error_description") or asked.get("error") or "it sent no code"
        raise SignInRefused(why=f"the provider says: {why[:200]}")
    redirect_url = _redirect_url(request, console.provider)
    person = await asyncio.to_thread(console.provider.person, code, challenge, redirect_url)
    grant = await console.authorizer.grant_of_key(person.key)
    token = await asyncio.to_thread(console.sessions.open, grant, person.name)
    content = {"next_path": own_path(challenge.next_path)}
    response = html_response(
        PageFrame("Signed in", "/sign-in").render("signed_in.html.jinja", content)
    )
    response.delete_cookie(cookie_name(request, "oidc"))
    set_cookie(response, request, "session", token, SESSION_SECONDS_MAX)
    return response


def _redirect_url(request: AnyRequest, provider: OpenIdProvider) -> str:
    if provider.settings.oidc_redirect_url:
        return provider.settings.oidc_redirect_url
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}/sign-in/oidc"


@post("/sign-out", status_code=200, include_in_schema=False, exception_handlers=_ON_ERRORS)
async def post_sign_out(request: AnyRequest, console: Console) -> Response[Any]:
    fields, name = await _read_fields(request), cookie_name(request, "session")
    token = request.cookies.get(name, "")
    require_own_form(request.headers, token, fields.get(FIELD, ""))
    session = await asyncio.to_thread(console.sessions.find, token)
    if session is not None:
        await asyncio.to_thread(console.sessions.end, token, session)
    response = redirect_to("/sign-in")
    response.delete_cookie(name)
    return response


async def _read_fields(request: AnyRequest) -> dict[str, str]:
    """Read a form to sign in or out. It is small, so its memory is not counted."""
    form = await read_form(request, lambda _size: None)
    return {name: values[-1] for name, values in form.items()}
