"""Turns a request into a page: signed-in visitor, request fields, work on a thread, answer.

Pages over a whole lake are cached, and made anew in the background when they are old."""

import asyncio
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
from penstock.doors.console.templates import PageFrame
from penstock.doors.settings import ConsoleSettings
from penstock.lake.lake import Lake

#: Quicker pages are not cached.
_QUICK_SECONDS = 0.15
#: A page is fresh for this many times as long as it took to make.
_TIMES_SHOWN = 30
#: While it is made anew, it may be this many times as old.
_TIMES_OLD = 10
_PAGES_MAX = 100

_Key = tuple[str, str, str, bytes]


@dataclass(frozen=True)
class RememberedPage:
    content: Content
    made_us: int
    took_s: float


class PageMemory:
    """A cache of pages, for at most `seconds_max` each. Safe to share between threads."""

    def __init__(self, clock: Clock, seconds_max: float) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._pages: OrderedDict[_Key, RememberedPage] = OrderedDict()
        self._under_way: set[_Key] = set()
        self._forgotten: Counter[str] = Counter()
        self._lock = threading.Lock()

    def find(
        self, page: ConsolePage[Any], visitor: Visitor, request: Request
    ) -> tuple[RememberedPage | None, bool]:
        """The page that may be shown, and whether this caller has to make it anew."""
        key = _key_of(page, visitor, request)
        with self._lock:
            known = self._pages.get(key)
            if known is None:
                return None, False
            self._pages.move_to_end(key)
            keep_s = min(self._seconds_max, _TIMES_SHOWN * known.took_s)
            age_s = (self._clock.now_us() - known.made_us) / SECOND_US
            if age_s <= keep_s:
                return known, False
            if age_s > _TIMES_OLD * keep_s:
                del self._pages[key]
                return None, False
            if key in self._under_way:
                return known, False
            self._under_way.add(key)
            return known, True

    def forget(self, tenant: str) -> None:
        """Forget all pages of a tenant: somebody changed what they show."""
        with self._lock:
            self._forgotten[tenant] += 1
            for key in [key for key in self._pages if key[1] == tenant]:
                del self._pages[key]

    def make(
        self, page: ConsolePage[Any], visitor: Visitor, request: Request, work: Callable[[], Any]
    ) -> Any:
        """Do the work, and cache its result if it took long."""
        key = _key_of(page, visitor, request)
        began_us, began_s = self._clock.now_us(), self._clock.elapsed_s()
        forgotten = self._forgotten[visitor.grant.tenant]
        try:
            content = work()
            took_s = self._clock.elapsed_s() - began_s
            if isinstance(content, Mapping) and took_s > _QUICK_SECONDS and self._seconds_max > 0:
                with self._lock:
                    if forgotten == self._forgotten[visitor.grant.tenant]:
                        self._pages[key] = RememberedPage(content, began_us, took_s)
                    while len(self._pages) > _PAGES_MAX:
                        self._pages.popitem(last=False)
        finally:
            with self._lock:
                self._under_way.discard(key)
        return content


def _key_of(page: ConsolePage[Any], visitor: Visitor, request: Request) -> _Key:
    grant = visitor.grant
    asked = msgspec.json.encode(request)
    return page.path, grant.tenant, grant.role, asked


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
    _making: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

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
                self.memory.forget(grant.tenant)
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
        work = partial(page.work, visitor, request)
        if page.remembered:
            known, is_due = self.memory.find(page, visitor, request)
            work = partial(self.memory.make, page, visitor, request, work)
            if is_due:
                task = asyncio.create_task(_make_anew(slots, work, tenant))
                self._making.add(task)
                task.add_done_callback(self._making.discard)
            if known is not None:
                frame, slots = replace(frame, made_us=known.made_us), self.bounds.calls
                work = partial(getattr, known, "content")
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


async def _make_anew(slots: RequestSlots, making: Callable[[], Any], tenant: str) -> None:
    try:
        await slots.run(making, tenant=tenant)
    except PenstockError as error:
        log_line.warning("a cached page could not be made anew", why=type(error).__name__)


def _answer_of(
    page: ConsolePage[Any], frame: PageFrame, work: Callable[[], Any], request: Request
) -> Redirect | Download:
    content = work()
    if isinstance(content, (Redirect, Download)):
        return content
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
