"""`POST /v1/query`, as docs/http.md describes it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from litestar import MediaType, Request, Response, post
from litestar.openapi.spec import (
    OpenAPIFormat,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Schema,
)

from penstock.http.body import read_document
from penstock.http.openapi import KEY_NEEDED, operation_taking, refusals
from penstock.http.request_slots import RequestSlots
from penstock.lake import answer_formats
from penstock.lake.errors import QueryLimitReached
from penstock.lake.lake import Lake, LakeQuery
from penstock.lake.settings import LakeSettings
from penstock.metrics import Metrics

ARROW_STREAM = "application/vnd.apache.arrow.stream"


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


_Body = operation_taking(
    QueryRequest,
    as_of=Schema(
        type=OpenAPIType.STRING, description="A snapshot's name, or a time with its zone."
    ),
)


@dataclass
class QueryOperation(_Body):  # type: ignore[misc, valid-type]
    """The answer has two forms."""

    def __post_init__(self) -> None:
        super().__post_init__()
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            answer.content[ARROW_STREAM] = OpenAPIMediaType(
                schema=Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)
            )


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
async def post_query(
    request: Request[Any, Any, Any],
    *,
    lake: Lake,
    reading_tenant: str,
    queries: RequestSlots,
    metrics: Metrics,
) -> Response[QueryAnswer]:
    asked = await read_document(request, QueryRequest)
    as_arrow = ARROW_STREAM in request.headers.get("accept", "")
    query = lake.query(asked.sql, as_of=asked.as_of, tenant=reading_tenant)
    answer = partial(
        _arrow_answer if as_arrow else _json_answer,
        query,
        lake.settings.room(LakeSettings).query_answer_bytes_max,
    )
    started = time.perf_counter()
    body = await queries.run(answer)
    metrics.observe("query_seconds", time.perf_counter() - started)
    media_type = ARROW_STREAM if as_arrow else MediaType.JSON
    return Response(body, media_type=media_type)  # type: ignore[arg-type]  # as it is encoded


def _arrow_answer(query: LakeQuery, bytes_max: int) -> bytes:
    with query.run() as answer, _bounded(bytes_max) as out:
        answer_formats.write(answer.batches, "arrow", out)
        return out.getvalue()


def _json_answer(query: LakeQuery, bytes_max: int) -> bytes:
    with query.run() as answer, _bounded(bytes_max) as out:
        columns = answer_formats.encode(answer.batches.schema.names).decode()
        out.write(f'{{"columns": {columns}, "rows": '.encode())
        answer_formats.write(answer.batches, "json", out)
        complete = answer_formats.encode(not answer.cut_off).decode()
        out.write(f', "snap": {answer.snap}, "complete": {complete}}}'.encode())
        return out.getvalue()


@contextmanager
def _bounded(bytes_max: int) -> Iterator[answer_formats.BoundedBuffer]:
    try:
        yield answer_formats.BoundedBuffer(bytes_max)
    except answer_formats.AnswerTooLarge:
        raise QueryLimitReached(
            limit=f"{bytes_max} bytes of answer", setting="PENSTOCK_QUERY_ANSWER_BYTES_MAX"
        ) from None


ROUTES = [post_query]
