"""Turns a request into a page: signed-in visitor, request fields, work on a thread, answer.

No request waits for figures of a whole lake: it gets the newest that are known, with their time.
New ones are added up in the background."""

import asyncio
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import msgspec
import structlog
from litestar import MediaType, Response
from litestar import Request as HttpRequest

from penstock.access.keys import Authorizer, Grant, KeyExpired, KeyRefused
from penstock.access.quotas import Quotas
from penstock.backends.http.request_limits import (
    RequestBounds,
    RequestSlots,
    bounded_answer,
    read_body,
)
from penstock.core.clock import SECOND_US, Clock
from penstock.core.endpoint import DOCUMENT_BYTES_MAX, Request, is_list
from penstock.core.errors import InvalidInput, PenstockError
from penstock.doors.console.page import (
    ConsolePage,
    Content,
    Download,
    PageFrame,
    Redirect,
    Refusal,
    Visitor,
    first_page,
)
from penstock.doors.console.sign_in import (
    FIELD,
    BrowserSessions,
    OpenIdProvider,
    SignInLinks,
    SignInNeeded,
    require_own_form,
)
from penstock.doors.settings import ConsoleSettings
from penstock.lake.lake import Lake

#: A visitor waits so long for new figures, and then gets the newest there are.
_WAIT_SECONDS = 0.2
#: A page is fresh for this many times as long as it took to make.
_TIMES_SHOWN = 30
#: Nobody sees older ones: what they show may have been erased meanwhile.
_OLD_SECONDS = 600
_PAGES_MAX = 100
_AWAITED = "awaited.html.jinja"
#: Tenant, role, path and request.
PageKey = tuple[str, str, str, bytes]


class RememberedPage(msgspec.Struct, frozen=True):
    #: Or why it could not be made.
    content: Content | PenstockError
    made_us: int
    took_s: float


class PageMemory:
    """A cache of pages. Each is fresh for at most `seconds_max`."""

    def __init__(self, clock: Clock, seconds_max: float) -> None:
        self._clock = clock
        self.seconds_max = seconds_max
        self._pages: OrderedDict[PageKey, RememberedPage] = OrderedDict()
        self._making: dict[PageKey, asyncio.Task[RememberedPage]] = {}
        self._changed_us: dict[str, int] = {}
        #: A tenant adds up one page at a time: its other queries need slots too.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def newest(
        self, key: PageKey, slots: RequestSlots, work: Callable[[], Any], *, outdated: bool
    ) -> tuple[RememberedPage | None, bool]:
        """The newest page, if any, and whether a newer one is awaited: a visitor waits little. With
        `outdated` it may lack what people changed."""
        known, is_fresh = self.find(key)
        if is_fresh:
            return known, False
        if (task := self._making.get(key)) is None:
            task = self._making[key] = asyncio.create_task(self._make(key, slots, work))
            task.add_done_callback(lambda _: self._making.pop(key))
        await asyncio.wait({task}, timeout=_WAIT_SECONDS)
        newest = task.result() if task.done() else known
        is_behind = newest is not None and self._is_behind(key, newest)
        return None if is_behind and not outdated else newest, is_behind or not task.done()

    def find(self, key: PageKey) -> tuple[RememberedPage | None, bool]:
        """The newest page, if any, and whether it is fresh."""
        if (known := self._pages.get(key)) is None:
            return None, False
        self._pages.move_to_end(key)
        is_quick = known.took_s <= _WAIT_SECONDS
        keep_s = min(self.seconds_max, _TIMES_SHOWN * known.took_s)
        age_s = (self._clock.now_us() - known.made_us) / SECOND_US - known.took_s
        if age_s < keep_s and not is_quick and not self._is_behind(key, known):
            return known, True
        is_gone = isinstance(known.content, PenstockError) or age_s > _OLD_SECONDS
        return None if is_gone else known, False

    def _is_behind(self, key: PageKey, page: RememberedPage) -> bool:
        return page.made_us <= self._changed_us.get(key[0], 0)

    def note_change(self, tenant: str) -> None:
        self._changed_us[tenant] = self._clock.now_us()

    async def _make(
        self, key: PageKey, slots: RequestSlots, work: Callable[[], Any]
    ) -> RememberedPage:
        async with self._turns[key[0]]:
            made = await slots.run(partial(self.make, work), tenant=key[0])
        self.keep(key, made)
        return made

    def make(self, work: Callable[[], Any]) -> RememberedPage:
        began_us, began_s = self._clock.now_us(), self._clock.elapsed_s()
        try:
            content = work()
        except PenstockError as error:
            content = error
        return RememberedPage(content, began_us, self._clock.elapsed_s() - began_s)

    def keep(self, key: PageKey, made: RememberedPage) -> None:
        """Cache a page. An error takes no page's place."""
        if key not in self._pages or not isinstance(made.content, PenstockError):
            self._pages[key] = made
        if len(self._pages) > _PAGES_MAX:
            self._pages.popitem(last=False)


def key_of(page: ConsolePage[Any], visitor: Visitor, request: Request) -> PageKey:
    return visitor.grant.tenant, visitor.grant.role, page.path, msgspec.json.encode(request)


log_line = structlog.get_logger()

AnyRequest = HttpRequest[Any, Any, Any]
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Sent by scripts that fetch more of a page: `reader`, or `timer` for a request by no person.
FRAGMENT_HEADER = "penstock-fragment"
_NOT_IN_NAMES = re.compile(r"[^\w.-]", re.ASCII)
_NOTICE_CHARS_MAX = 500


@dataclass
class Console:
    authorizer: Authorizer
    quotas: Quotas
    lake: Lake
    bounds: RequestBounds
    clock: Clock

    def __post_init__(self) -> None:
        settings = self.lake.settings.room(ConsoleSettings)
        self.memory = PageMemory(self.clock, settings.console_figures_seconds)
        self.sessions = BrowserSessions(self.lake.database, self.clock)
        self.links = SignInLinks(self.clock)
        self.provider = OpenIdProvider.of(settings)

    async def show(self, page: ConsolePage[Any], request: AnyRequest) -> Response[Any]:
        token = request.cookies.get(cookie_name(request, "session"), "")
        is_use = request.headers.get(FRAGMENT_HEADER) != "timer"
        grant, person = await self._grant(token, is_use=is_use)
        visitor = Visitor(grant, self.lake, self.quotas, self.clock, person)
        request.state.visitor, request.state.cookie = visitor, token
        if page.path == "/" and not visitor.may(*page.roles):
            return redirect_to(first_page(visitor))
        grant.require(*page.roles)
        fields: dict[str, list[str]] = {}
        if page.method == "POST":
            with self.bounds.bodies.holding(grant.tenant) as hold:
                fields = await read_form(request, hold)
            require_own_form(request.headers, token, _last(fields.pop(FIELD, [])))
        question = request_of(page, request, fields)
        notice_name = cookie_name(request, "notice")
        notice = unquote(request.cookies.get(notice_name, ""))[:_NOTICE_CHARS_MAX]
        frame = PageFrame(
            page.title, path_of(request), visitor, page, token, notice, is_fragment(request)
        )
        try:
            answer = await self._answer(page, frame, visitor, question)
        finally:
            if page.method == "POST":
                self.memory.note_change(grant.tenant)
        if isinstance(answer, Redirect):
            response = redirect_to(answer.path)
            if answer.notice:
                set_cookie(response, request, "notice", quote(answer.notice), 60)
            return response
        headers = dict(_HEADERS)
        if answer.name:
            name = _NOT_IN_NAMES.sub("-", answer.name)
            headers["Content-Disposition"] = f'attachment; filename="{name}"'
        facts = (answer.content, answer.media_type, headers)
        response = bounded_answer(self.bounds.answers, grant.tenant, *facts)
        response.status_code = answer.status
        if notice and not frame.fragment:
            response.delete_cookie(notice_name)
        return response

    async def _answer(
        self, page: ConsolePage[Any], frame: PageFrame, visitor: Visitor, request: Request
    ) -> Redirect | Download:
        slots, tenant = self.bounds.slots(reads_rows=page.reads_rows), visitor.grant.tenant
        work: Callable[[], Any] = partial(page.work, visitor, request)
        if page.remembered and self.memory.seconds_max:
            key, outdated = key_of(page, visitor, request), page.live is not None
            known, awaits = await self.memory.newest(key, slots, work, outdated=outdated)
            slots, content = self.bounds.calls, known.content if known else {}
            if isinstance(content, PenstockError):
                raise content
            page = page if known else replace(page, template=_AWAITED, live=None)
            frame = replace(frame, made_us=known.made_us if known else None, awaits=awaits)
            work = partial(dict, content)
        return await slots.run(partial(_answer_of, page, frame, work, request), tenant=tenant)

    async def _grant(self, token: str, *, is_use: bool) -> tuple[Grant, str | None]:
        if not token:
            raise SignInNeeded
        session = await asyncio.to_thread(self.sessions.find, token, is_use=is_use)
        if session is None:
            raise SignInNeeded
        try:
            return await self.authorizer.grant_of_key(session.key_id), session.person
        except (KeyRefused, KeyExpired):
            await asyncio.to_thread(self.sessions.end, token, session)
            raise SignInNeeded from None


def _answer_of(
    page: ConsolePage[Any], frame: PageFrame, work: Callable[[], Any], request: Request
) -> Redirect | Download:
    content = work()
    if isinstance(content, (Redirect, Download)):
        return content
    if page.live is not None and frame.visitor is not None:
        content = {**content, **page.live(frame.visitor, request, content)}
    shown, status = content, 200
    if isinstance(content, Refusal):
        shown, status = content.content, content.status
    html = frame.render(page.template, {"asked": request} | dict(shown)).encode()
    return Download("", MediaType.HTML, html, status)


def html_response(html: str, status: int = 200) -> Response[Any]:
    return Response(html, status_code=status, media_type=MediaType.HTML, headers=_HEADERS)


def redirect_to(path: str) -> Response[Any]:
    return Response(b"", status_code=303, headers=_HEADERS | {"Location": path})


def cookie_name(request: AnyRequest, what: str) -> str:
    """Name a cookie. Browsers ignore the port, so the name holds it: one machine may run several
    services."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"penstock-{what}" + (f"-{port}" if port.isdecimal() else "")


def set_cookie(
    response: Response[Any],
    request: AnyRequest,
    what: str,
    value: str,
    seconds: int | None,
    *,
    from_elsewhere: bool = False,
) -> None:
    response.set_cookie(
        key=cookie_name(request, what),
        value=value,
        max_age=seconds,
        path="/",
        httponly=True,
        secure=request.scope["scheme"] == "https",
        samesite="lax" if from_elsewhere else "strict",
    )


def is_fragment(request: AnyRequest) -> bool:
    return request.headers.get(FRAGMENT_HEADER) is not None


def own_path(text: str) -> str:
    """The path if it belongs to this console, else the first page."""
    own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if own and text.isascii() else "/"


async def read_form(request: AnyRequest, hold: Callable[[int], None]) -> dict[str, list[str]]:
    body = await read_body(request, DOCUMENT_BYTES_MAX, hold)
    try:
        return parse_qs(body.decode(), max_num_fields=1000)
    except ValueError as error:
        raise InvalidInput(what="The form", why=str(error)) from None


def request_of(
    page: ConsolePage[Any], request: AnyRequest, form: Mapping[str, list[str]]
) -> Request:
    """Read the fields of a page's request. Raises InvalidInput.

    Empty and unknown fields are ignored."""
    given: dict[str, list[str]] = dict(request.query_params.dict()) | dict(form)
    given |= {name: [str(value).removeprefix("/")] for name, value in request.path_params.items()}
    kinds = {field.name: field.type for field in msgspec.structs.fields(page.request)}
    fields: dict[str, Any] = {}
    for name, kind in kinds.items():
        values = [value for value in given.get(name, ()) if value != ""]
        if values:
            fields[name] = values if is_list(kind) else values[-1]
    try:
        asked: Request = msgspec.convert(fields, page.request, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(what="The request of this page", why=str(error)) from None
    return asked


def _last(values: list[str]) -> str:
    return values[-1] if values else ""


def path_of(request: AnyRequest) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")
