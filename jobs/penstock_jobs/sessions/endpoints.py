"""The endpoint of the list of sessions."""

from penstock.core.endpoint import Caller, Endpoint
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock_jobs.sessions.session_page import SessionPage, SessionsRequest


def _list(lake: Lake, caller: Caller, asked: SessionsRequest) -> SessionPage:
    from penstock_jobs.sessions.reading import list_sessions

    return list_sessions(lake, caller, asked)


LIST_SESSIONS = Endpoint(
    "GET /v1/sessions",
    _list,
    ("read",),
    "Sessions, the newest first",
    description="Each with its outcome, if one was computed.",
    refused={422: "The answer is over its limit, or took too long."},
    reads_rows=True,
)
ENDPOINTS: Endpoints = [LIST_SESSIONS]
