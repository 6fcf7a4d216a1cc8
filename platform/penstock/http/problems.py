"""Errors as `application/problem+json`: what happened, to what, what to do."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException

from penstock.errors import PenstockError
from penstock.http.request_log import current_request

PROBLEM = "application/problem+json"

log_line = structlog.get_logger()


class Problem(msgspec.Struct):
    """Why a request was refused or failed, as RFC 9457 has it. `error` is the name of the error,
    `exit_status` that of a command that fails with it."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    error: str = ""
    exit_status: int = 1
    #: As in the header `X-Request-Id`, and in the log.
    request_id: str | None = None


def on_penstock_error(_request: Request[Any, Any, Any], error: PenstockError) -> Response[bytes]:
    detail = " ".join(str(error).split())
    name = type(error).__name__
    title = re.sub(r"(?<!^)(?=[A-Z])", " ", name).capitalize()
    problem = Problem(title, error.http_status, detail, error=name, exit_status=error.exit_status)
    return _answer(problem, error.http_headers, error.http_fields)


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    headers = error.headers or {}
    detail = error.detail
    if error.status_code == 404:
        detail = f"There is nothing at {request.url.path}; /openapi.json lists what there is."
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
    detail = "This is a fault of the service; it is logged."
    return _answer(Problem("Unexpected error", 500, detail))


def _answer(
    problem: Problem,
    headers: Mapping[str, str] | None = None,
    fields: dict[str, Any] | None = None,
) -> Response[bytes]:
    if (request := current_request()) is not None:
        problem.request_id = request.id
    return Response(
        msgspec.json.encode(msgspec.to_builtins(problem) | (fields or {}), enc_hook=str),
        status_code=problem.status,
        media_type=PROBLEM,
        headers=headers,
    )
