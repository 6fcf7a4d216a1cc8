"""`POST /v1/query`, as docs/http.md describes it."""

import io
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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
from penstock.lake.errors import QueryLimitReached
from penstock.lake.lake import Lake
from penstock.lake.query import LakeQuery, encode, write_rows
from penstock.lake.settings import LakeSettings
from penstock.metrics import Metrics

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer

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


_AS_OF = Schema(type=OpenAPIType.STRING, description="A snapshot's name, or a time with its zone.")


@dataclass
class QueryOperation(operation_taking(QueryRequest, as_of=_AS_OF)):  # type: ignore[misc]
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
    document = await read_document(request, QueryRequest)
    as_arrow = ARROW_STREAM in request.headers.get("accept", "")
    query = lake.query(document.sql, as_of=document.as_of, tenant=reading_tenant)
    bytes_max = lake.settings.room(LakeSettings).query_answer_bytes_max
    started = time.perf_counter()
    answer = await queries.run(
        partial(_answer_of, query, bytes_max, as_arrow=as_arrow), tenant=reading_tenant
    )
    metrics.observe("query_seconds", time.perf_counter() - started)
    media_type = ARROW_STREAM if as_arrow else MediaType.JSON
    return Response(answer, media_type=media_type)  # type: ignore[arg-type]  # as it is encoded


def _answer_of(query: LakeQuery, bytes_max: int, *, as_arrow: bool) -> bytes:
    with query.run() as answer, _BoundedBuffer(bytes_max) as out:
        if as_arrow:
            write_rows(answer.batches, "arrow", out)
        else:
            out.write(b'{"columns": %s, "rows": ' % encode(answer.batches.schema.names))
            write_rows(answer.batches, "json", out)
            complete = encode(not answer.cut_off)
            out.write(b', "snap": %d, "complete": %s}' % (answer.snap, complete))
        return out.getvalue()


class _BoundedBuffer(io.BytesIO):
    """Collects bytes up to a limit; raises QueryLimitReached beyond."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def write(self, data: "Buffer") -> int:
        if self.tell() + memoryview(data).nbytes > self._bytes_max:
            limit = f"{self._bytes_max} bytes of answer"
            raise QueryLimitReached(limit=limit, setting="PENSTOCK_QUERY_ANSWER_BYTES_MAX")
        return super().write(data)


ROUTES = [post_query]
