"""The HTTP surface, as docs/http.md describes it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get, post

from penstock.errors import InvalidInput, PenstockError
from penstock.http.body import read_body
from penstock.ingest.acceptance import Acceptance
from penstock.ingest.bodies import decompress
from penstock.ingest.settings import IngestSettings
from penstock.lake import answer_formats
from penstock.lake.errors import QueryLimitReached
from penstock.lake.lake import Query
from penstock.lake.settings import LakeSettings
from penstock.server.registry_routes import REGISTRY_ROUTES
from penstock.server.schema import (
    ARROW_STREAM,
    KEY_NEEDED,
    EventsOperation,
    QueryOperation,
    refusals,
)
from penstock.server.service import Service, telling_cut_off

#: The body of a query, with its SQL.
QUERY_BYTES_MAX = 1024 * 1024


class Refused(msgspec.Struct):
    """A line that was not accepted; lines count from 1."""

    line: int
    error: str


class Accepted(msgspec.Struct):
    """What became of the lines of a body: the accepted ones are on disk."""

    accepted: int
    rejected: list[Refused]


class QueryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`as_of` is the name of a snapshot or a time; without it fresh events are included."""

    sql: str
    as_of: str | None = None


class QueryAnswer(msgspec.Struct):
    """`complete` is false when the log held more fresh events than one query may read."""

    columns: list[str]
    rows: list[dict[str, Any]]
    snap: int
    complete: bool


@post(
    "/v1/events",
    status_code=200,
    summary="Send events",
    description="NDJSON, or a JSON array; plain, gzip or zstd. Answers when all is on disk.",
    media_type=MediaType.JSON,
    operation_class=EventsOperation,
    responses=refusals(400, 401, 403, 408, 413, 415, 429, 503),
    security=KEY_NEEDED,
)
async def post_events(request: Request[Any, Any, Any], service: Service) -> Response[Accepted]:
    started = time.perf_counter()
    try:
        with telling_cut_off():
            acceptance = await _take_in(request, service)
    except PenstockError as error:
        service.metrics.add("requests_refused_total", status=str(error.http_status))
        raise
    service.metrics.observe("request_seconds", time.perf_counter() - started)
    return Response(acceptance.answer())  # type: ignore[arg-type]  # Accepted, as it is encoded


async def _take_in(request: Request[Any, Any, Any], service: Service) -> Acceptance:
    grant = await service.authorize(request.headers.get("authorization"), "ingest")
    if service.commits is None:
        raise InvalidInput(what="This process", why="it was started without the gateway role")
    settings = service.settings
    with service.inflight.holding(grant.tenant) as hold:
        sent = await read_body(request, settings.room(IngestSettings).body_bytes_max, hold)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        body = await _decompress(
            sent, encoding, settings.room(IngestSettings).body_decoded_bytes_max, hold
        )
        del sent
        whole = Acceptance()
        for piece in service.acceptor(grant.tenant).accept(body, service.clock.now_us()):
            whole.add(piece)
            await asyncio.sleep(0)  # a large body must not keep the others waiting
        del body
        if whole.values:
            await service.commits.append(whole.values)
    service.metrics.add("events_accepted_total", whole.accepted, tenant=grant.tenant)
    service.metrics.add("events_rejected_total", len(whole.rejections), tenant=grant.tenant)
    return whole


async def _decompress(
    sent: bytes, encoding: str, bytes_max: int, hold: Callable[[int], None]
) -> bytes:
    """Holds the larger of the two forms, so that any body within the limits fits when no other
    is there."""
    parts, size = [], 0
    for part in decompress(sent, encoding, bytes_max):
        before, size = max(size, len(sent)), size + len(part)
        hold(max(size, len(sent)) - before)
        parts.append(part)
        if len(parts) > 1:
            await asyncio.sleep(0)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@post(
    "/v1/query",
    status_code=200,
    summary="Ask with SQL",
    description="Rows as JSON, or as an Arrow stream when `Accept` names "
    f"{ARROW_STREAM}. See docs/sql.md for the views and the limits.",
    operation_class=QueryOperation,
    responses=refusals(400, 401, 403, 404, 408, 410, 413, 422, 429, 503),
    security=KEY_NEEDED,
)
async def post_query(request: Request[Any, Any, Any], service: Service) -> Response[QueryAnswer]:
    grant = await service.authorize(request.headers.get("authorization"), "read")
    asked = _query_request(await read_body(request, QUERY_BYTES_MAX, hold=lambda _: None))
    as_arrow = ARROW_STREAM in request.headers.get("accept", "")
    query = service.lake.query(asked.sql, as_of=asked.as_of, tenant=grant.tenant)
    answer = partial(
        _arrow_answer if as_arrow else _json_answer,
        query,
        service.settings.room(LakeSettings).query_answer_bytes_max,
    )
    started = time.perf_counter()
    with telling_cut_off():
        body = await service.run_query(answer)
    service.metrics.observe("query_seconds", time.perf_counter() - started)
    media_type = ARROW_STREAM if as_arrow else MediaType.JSON
    return Response(body, media_type=media_type)  # type: ignore[arg-type]  # as it is encoded


def _query_request(body: bytes) -> QueryRequest:
    try:
        return msgspec.json.decode(body, type=QueryRequest)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="The request body", why=str(error)) from None


def _arrow_answer(query: Query, bytes_max: int) -> bytes:
    with query.run() as answer, _bounded(bytes_max) as out:
        answer_formats.write(answer.batches, "arrow", out)
        return out.getvalue()


def _json_answer(query: Query, bytes_max: int) -> bytes:
    with query.run() as answer, _bounded(bytes_max) as out:
        columns = answer_formats.encode(answer.batches.schema.names).decode()
        out.write(f'{{"columns": {columns}, "rows": '.encode())
        answer_formats.write(answer.batches, "json", out)
        complete = answer_formats.encode(not answer.cut_off).decode()
        out.write(f', "snap": {answer.snap}, "complete": {complete}}}'.encode())
        return out.getvalue()


@contextmanager
def _bounded(bytes_max: int) -> Iterator[answer_formats.Bounded]:
    try:
        yield answer_formats.Bounded(bytes_max)
    except answer_formats.AnswerTooLarge:
        raise QueryLimitReached(
            limit=f"{bytes_max} bytes of answer", setting="PENSTOCK_QUERY_ANSWER_BYTES_MAX"
        ) from None


@get("/healthz", media_type=MediaType.TEXT, summary="Alive", sync_to_thread=False)
def get_healthz() -> str:
    return "alive\n"


@get("/readyz", summary="Making progress", sync_to_thread=False)
def get_readyz(service: Service) -> Response[dict[str, Any]]:
    problems = list(service.problems())
    body = {"ready": not problems, "problems": problems, "warnings": service.warnings()}
    return Response(body, status_code=503 if problems else 200)


@get("/metrics", media_type=MediaType.TEXT, summary="Prometheus", sync_to_thread=False)
def get_metrics(service: Service) -> Response[bytes]:
    return Response(service.exposition(), media_type="text/plain; version=0.0.4")


ROUTES = [post_events, post_query, *REGISTRY_ROUTES, get_healthz, get_readyz, get_metrics]
