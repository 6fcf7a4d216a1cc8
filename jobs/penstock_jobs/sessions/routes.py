"""`GET /v1/sessions` and `GET /v1/sessions/{id}`, as docs/http.md describes them."""

from functools import partial
from typing import Annotated

from litestar import MediaType, Response, get
from litestar.params import Parameter

from penstock.http.openapi import KEY_NEEDED, RefusableOperation, refusals
from penstock.http.request_slots import RequestSlots
from penstock.lake.lake import Lake
from penstock.lake.row_formats import encode
from penstock.terminal.options import since_us
from penstock_jobs.rewards.outcomes import Kind
from penstock_jobs.sessions.listing import LISTED_MAX, ListFilter, SessionPage, list_sessions
from penstock_jobs.sessions.session_record import EVENTS_MAX, SessionRecord, read_session

_TEXT_CHARS_MAX = 1_024
Text = Annotated[str | None, Parameter(max_length=_TEXT_CHARS_MAX)]
Cursor = Annotated[
    str | None,
    Parameter(max_length=4 * _TEXT_CHARS_MAX, description="The `next` of the page before."),
]
Definition = Annotated[
    str | None,
    Parameter(
        max_length=_TEXT_CHARS_MAX,
        description="A definition of rewards, by name or version; else the one that ran last.",
    ),
]
Since = Annotated[
    str | None, Parameter(max_length=64, description="Heard of since: RFC 3339, or an age: 24h.")
]
_REFUSALS = {
    400: "A parameter cannot be used; the detail says why.",
    404: "There is no such session.",
    422: "The answer is over its limit, or took too long.",
}


@get(
    "/v1/sessions",
    summary="Sessions, the newest first",
    description="Each with its outcome, where one was computed.",
    operation_class=RefusableOperation,
    responses=refusals(400, 401, 403, 422, 429, 503, said=_REFUSALS),
    security=KEY_NEEDED,
)
async def get_sessions(
    *,
    lake: Lake,
    reading_tenant: str,
    queries: RequestSlots,
    project: Text = None,
    checkpoint: Text = None,
    outcome: Kind | None = None,
    since: Since = None,
    definition: Definition = None,
    cursor: Cursor = None,
    limit: Annotated[int, Parameter(ge=1, le=LISTED_MAX)] = 50,
) -> Response[SessionPage]:
    heard_us = since_us(since, "since") if since else None
    sessions = ListFilter(project, checkpoint, outcome, heard_us, definition)
    work = partial(list_sessions, lake, reading_tenant, sessions, cursor=cursor, limit=limit)
    page = await queries.run(lambda: encode(work()), tenant=reading_tenant)
    return Response(page, media_type=MediaType.JSON)  # type: ignore[arg-type]  # as it is encoded


@get(
    "/v1/sessions/{session_id:path}",
    summary="A session with its events and rewards",
    description="A page of its events; the first page also says what is known of the session, what "
    "it is worth, and why.",
    operation_class=RefusableOperation,
    responses=refusals(400, 401, 403, 404, 422, 429, 503, said=_REFUSALS),
    security=KEY_NEEDED,
)
async def get_session(
    *,
    lake: Lake,
    reading_tenant: str,
    queries: RequestSlots,
    session_id: Annotated[str, Parameter(description="Its id, which may hold slashes.")],
    definition: Definition = None,
    cursor: Cursor = None,
    limit: Annotated[int, Parameter(ge=1, le=EVENTS_MAX, description="Events on a page.")] = 200,
) -> Response[SessionRecord]:
    session = session_id.removeprefix("/")
    work = partial(
        read_session,
        lake,
        session,
        reading_tenant,
        definition=definition,
        cursor=cursor or "",
        limit=limit,
    )
    record = await queries.run(lambda: encode(work()), tenant=reading_tenant)
    return Response(record, media_type=MediaType.JSON)  # type: ignore[arg-type]  # likewise


ROUTES = [get_sessions, get_session]
