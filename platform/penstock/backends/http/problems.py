"""Errors as `application/problem+json`: what happened, to what, what to do."""

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.errors import PenstockError, one_line
from penstock.core.metrics import Metrics

_HEADER = b"x-request-id"
#: Other ids are replaced by ours: they stand in log lines and headers.
_ACCEPTED = re.compile(rb"[\w.:/+=@~-]{1,128}", re.ASCII)
_PATH_CHARS_MAX = 200
#: No news while all is well.
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})

log_line = structlog.get_logger()


@dataclass
class RequestFacts:
    """Facts about a request while it is answered."""

    id: str
    #: The id and the tenant of its key, once it is accepted.
    key: str | None = None
    tenant: str | None = None
    #: The address of the balancer, if one is in front.
    address: str | None = None


_current: ContextVar[RequestFacts | None] = ContextVar("request_facts", default=None)


def current_request() -> RequestFacts | None:
    return _current.get()


class RequestLog:
    """Middleware that gives requests ids, counts answers and writes log lines."""

    def __init__(self, app: ASGIApp, metrics: Metrics, which: str) -> None:
        """`which` is the setting `request_log`."""
        self._app = app
        self._metrics = metrics
        self._which = which

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request = RequestFacts(_sent_id(scope["headers"]) or secrets.token_hex(8))
        if client := scope.get("client"):
            request.address = client[0]
        header = (_HEADER, request.id.encode())
        _current.set(request)
        structlog.contextvars.bind_contextvars(request_id=request.id)
        started_s = time.perf_counter()
        status = size = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], header]
            elif message["type"] == "http.response.body":
                size += len(message["body"])
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            route = scope.get("path_template") or "none"  # bounded, as paths are not
            self._metrics.add("http_answers_total", route=route, status=str(status))
            if self._is_wanted(scope["path"], status):
                self._write(scope, request, status, size, time.perf_counter() - started_s)

    def _is_wanted(self, path: str, status: int) -> bool:
        failed = not 200 <= status < 400
        return self._which != "none" and (failed or (self._which == "all" and path not in _PROBES))

    def _write(
        self, scope: Any, request: RequestFacts, status: int, size: int, seconds: float
    ) -> None:
        """Write a line without the query string, which may hold names of users."""
        log_line.info(
            "request",
            method=scope["method"],
            path=scope["path"][:_PATH_CHARS_MAX],
            status=status or None,  # nothing was answered: the client was gone
            ms=round(seconds * 1000, 1),
            bytes=size,
            address=request.address,
            key=request.key,
            tenant=request.tenant,
        )


def _sent_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    for name, value in headers:
        if name == _HEADER:
            return value.decode() if _ACCEPTED.fullmatch(value) else None
    return None


PROBLEM = "application/problem+json"


class Problem(msgspec.Struct):
    """A refusal or failure, as in RFC 9457. `exit_status` is for commands."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    error: str = ""
    exit_status: int = 1
    #: As in the header `X-Request-Id`, and in the log.
    request_id: str | None = None


def on_penstock_error(_request: Request[Any, Any, Any], error: PenstockError) -> Response[bytes]:
    detail = one_line(error)
    name = type(error).__name__
    title = re.sub(r"(?<!^)(?=[A-Z])", " ", name).capitalize()
    problem = Problem(title, error.http_status, detail, error=name, exit_status=error.exit_status)
    return _answer(problem, error.http_headers, error.http_fields)


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    headers = error.headers or {}
    detail = error.detail
    if error.status_code == 404:
        detail = f"There is nothing at {request.url.path}; /openapi.json lists the paths."
    elif error.status_code == 405:
        allowed = headers.get("allow", "other methods")
        detail = f"{request.url.path} does not take {request.method}, but {allowed}."
    elif isinstance(error.extra, list) and error.extra:
        wrong = [f"{parameter['key']}: {parameter['message']}" for parameter in error.extra]
        detail = f"The query string cannot be used: {'; '.join(wrong)}."
    phrase = HTTPStatus(error.status_code).phrase
    return _answer(Problem(phrase, error.status_code, detail), headers)


def on_unexpected_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log_line.error("request failed", path=request.url.path, exc_info=error)
    detail = "The service has a fault; its log says more."
    return _answer(Problem("Unexpected error", 500, detail))


def _answer(
    problem: Problem, headers: Mapping[str, str] | None = None, fields: dict[str, Any] | None = None
) -> Response[bytes]:
    if (request := current_request()) is not None:
        problem.request_id = request.id
    return Response(
        msgspec.json.encode(msgspec.to_builtins(problem) | (fields or {}), enc_hook=str),
        status_code=problem.status,
        media_type=PROBLEM,
        headers=headers,
    )
