"""Errors as `application/problem+json`: what happened, to what, what to do."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException

from penstock.channels.errors import PromotionConflict
from penstock.database.errors import DatabaseUnreachable
from penstock.errors import Backlogged, PenstockError
from penstock.gate.errors import GateRefused
from penstock.gate.verdict import Verdict
from penstock.ingest.errors import EncodingUnknown
from penstock.storage.errors import StoreUnreachable

PROBLEM = "application/problem+json"
_RETRY_SECONDS = 5

log_line = structlog.get_logger()


class Problem(msgspec.Struct):
    """Why a request was refused or failed, as RFC 9457 has it."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"


class ConflictProblem(Problem, kw_only=True):
    """A compare-and-swap found something else: which checkpoint, at which version."""

    expected: str | None
    found: str | None
    version: int


class GateProblem(Problem, kw_only=True):
    """The gate did not say PASS: its document, whole."""

    outcome: str
    verdict: dict[str, Any]
    verdict_id: str


def answer_problem(
    status: int,
    title: str,
    detail: str,
    headers: dict[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Response[bytes]:
    """`fields` stand beside what every problem has."""
    problem = msgspec.to_builtins(Problem(title, status, detail)) | dict(fields or {})
    return Response(
        msgspec.json.encode(problem, enc_hook=str),
        status_code=status,
        media_type=PROBLEM,
        headers=headers,
    )


def on_penstock_error(_request: Request[Any, Any, Any], error: PenstockError) -> Response[bytes]:
    headers = {"WWW-Authenticate": "Bearer"} if error.http_status == 401 else {}
    if isinstance(error, Backlogged):
        headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, (DatabaseUnreachable, StoreUnreachable)):
        headers["Retry-After"] = str(_RETRY_SECONDS)
    elif isinstance(error, EncodingUnknown):
        headers["Accept-Encoding"] = "gzip, zstd"
    detail = " ".join(str(error).split())
    title = _title(type(error).__name__)
    return answer_problem(error.http_status, title, detail, headers, _fields(error))


def _fields(error: PenstockError) -> dict[str, Any]:
    """What a program needs to go on by."""
    if isinstance(error, PromotionConflict):
        return {name: error.facts[name] for name in ("expected", "found", "version")}
    if isinstance(error, GateRefused):
        verdict = error.facts["verdict"]
        assert isinstance(verdict, Verdict)
        document = dict(verdict.document)
        return {"outcome": verdict.outcome, "verdict": document, "verdict_id": verdict.id}
    return {}


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    headers = error.headers or {}
    detail = error.detail
    if error.status_code == 404:
        detail = f"There is nothing at {request.url.path}; /openapi.json lists what there is."
    elif error.status_code == 405:
        allowed = headers.get("allow", "other methods")
        detail = f"{request.url.path} does not take {request.method}, but {allowed}."
    elif wrong := [f"{one['key']}: {one['message']}" for one in _invalid(error)]:
        detail = f"The query string cannot be used: {'; '.join(wrong)}."
    return answer_problem(error.status_code, HTTPStatus(error.status_code).phrase, detail, headers)


def _invalid(error: HTTPException) -> list[dict[str, str]]:
    """Parameters that Litestar could not take."""
    return error.extra if isinstance(error.extra, list) else []


def on_unexpected_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log_line.error("request failed", path=request.url.path, exc_info=error)
    return answer_problem(500, "Unexpected error", "This is a fault of the service; it is logged.")


def _title(class_name: str) -> str:
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", class_name)
    return words.capitalize()
