"""`POST /v1/query`, as docs/reference/http.md describes it."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from litestar import MediaType, Request, Response, post
from litestar.openapi.spec import (
    OpenAPIFormat,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Schema,
)

from penstock.backends.http import ClientGone
from penstock.backends.http.openapi import KEY_NEEDED, operation_taking, refusals
from penstock.backends.http.request_limits import (
    RequestSlots,
    bounded_answer,
    cut_off_when_cancelled,
    read_document,
)
from penstock.core.endpoint import Caller
from penstock.core.fairness import Holdings
from penstock.core.metrics import Metrics
from penstock.lake import LakeSettings
from penstock.lake.client import ARROW_STREAM, note_query
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import LakeQuery, WrittenAnswer
from penstock.lake.query.row_formats import AnswerBuffer, encode
from penstock.lake.query.statements import EndSignal

T = TypeVar("T")


class QueryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A query. `as_of` names a snapshot or a time; without it fresh events are included."""

    sql: str
    as_of: str | None = None


class QueryAnswer(msgspec.Struct):
    """The rows. `complete` is false if the log held more fresh events than a query may read."""

    columns: list[str]
    rows: list[dict[str, Any]]
    snap: int
    complete: bool


_AS_OF = Schema(type=OpenAPIType.STRING, description="A snapshot's name, or a time with its zone.")


@dataclass
class QueryOperation(operation_taking(QueryRequest, as_of=_AS_OF)):  # type: ignore[misc]
    def __post_init__(self) -> None:
        super().__post_init__()
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            answer.content[ARROW_STREAM] = OpenAPIMediaType(
                schema=Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)
            )
            number, boolean = Schema(type=OpenAPIType.INTEGER), Schema(type=OpenAPIType.BOOLEAN)
            snap = OpenAPIHeader(schema=number, description="As `snap` of the JSON.")
            complete = OpenAPIHeader(schema=boolean, description="As `complete` of the JSON.")
            answer.headers = {"Penstock-Snap": snap, "Penstock-Complete": complete}


@post(
    "/v1/query",
    status_code=200,
    summary="Query with SQL",
    description="Rows as JSON, or as an Arrow stream when `Accept` names "
    f"{ARROW_STREAM}. See docs/reference/sql.md for the views and the limits.",
    operation_class=QueryOperation,
    responses=refusals(400, 401, 403, 404, 408, 410, 413, 422, 429, 503),
    security=KEY_NEEDED,
)
async def post_query(
    request: Request[Any, Any, Any],
    *,
    lake: Lake,
    reading_caller: Caller,
    queries: RequestSlots,
    answers: Holdings,
    metrics: Metrics,
) -> Response[QueryAnswer]:
    document = await read_document(request, QueryRequest)
    as_arrow = ARROW_STREAM in request.headers.get("accept", "")
    tenant = reading_caller.tenant
    query = lake.query(document.sql, as_of=document.as_of, tenant=tenant)
    bytes_max = lake.settings.room(LakeSettings).query_answer_bytes_max
    started = time.perf_counter()
    end = EndSignal()

    def work() -> tuple[bytes, WrittenAnswer]:
        note_query(lake, reading_caller)
        return _answer_of(query, bytes_max, end, as_arrow=as_arrow)

    answer, written = await _while_connected(request, queries.run(work, tenant=tenant), end)
    metrics.observe("query_seconds", time.perf_counter() - started)
    media_type = ARROW_STREAM if as_arrow else MediaType.JSON
    headers = {"Penstock-Snap": str(written.snap)}
    headers["Penstock-Complete"] = "false" if written.cut_off else "true"
    return bounded_answer(answers, tenant, answer, media_type, headers)


async def _while_connected(
    request: Request[Any, Any, Any], work: Coroutine[Any, Any, T], end: EndSignal
) -> T:
    """Wait for the work, and end it when the client is gone or the service ends."""
    running = asyncio.create_task(work)
    connected = asyncio.create_task(until_gone(request))
    try:
        with cut_off_when_cancelled():
            await asyncio.wait((running, connected), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientGone
        return running.result()
    finally:
        if not running.done():
            end.send()
        for task in (running, connected):
            task.cancel()
        await asyncio.gather(running, connected, return_exceptions=True)


async def until_gone(request: Request[Any, Any, Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer_of(
    query: LakeQuery, bytes_max: int, end: EndSignal, *, as_arrow: bool
) -> tuple[bytes, WrittenAnswer]:
    with AnswerBuffer(bytes_max) as out:
        if as_arrow:
            written = query.write("arrow", out, end)
        else:
            out.write(b"{")
            written = query.write("members", out, end)
            complete = encode(not written.cut_off)
            out.write(b', "snap": %d, "complete": %s}' % (written.snap, complete))
        return out.getvalue(), written


ROUTES = [post_query]
