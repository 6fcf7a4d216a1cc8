"""What can be asked of sessions: which there are, and one with its events and rewards."""

from typing import Annotated

from msgspec import Meta

from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.terminal.options import since_us
from penstock_jobs.rewards.outcomes import Kind
from penstock_jobs.sessions.session_list import LISTED_MAX, ListFilter, SessionPage, list_sessions
from penstock_jobs.sessions.session_record import EVENTS_MAX, SessionRecord, read_session


class SessionsQuestion(Question):
    """`since` is a time, or an age such as 24h; `definition` the name or version of the one whose
    outcomes count, else of the one that ran last; `cursor` the `next` of the page before."""

    project: str | None = None
    checkpoint: str | None = None
    outcome: Kind | None = None
    since: str | None = None
    definition: str | None = None
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX)] = 50


class SessionQuestion(Question):
    """`limit` is of events."""

    session_id: str
    definition: str | None = None
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = 200


def _list_sessions(lake: Lake, caller: Caller, asked: SessionsQuestion) -> SessionPage:
    heard_us = since_us(asked.since) if asked.since else None
    sessions = ListFilter(
        asked.project, asked.checkpoint, asked.outcome, heard_us, asked.definition
    )
    return list_sessions(
        lake,
        caller.tenant,
        sessions,
        of_project=caller.project,
        cursor=asked.cursor,
        limit=asked.limit,
    )


def _show_session(lake: Lake, caller: Caller, asked: SessionQuestion) -> SessionRecord:
    return read_session(
        lake,
        asked.session_id,
        caller.tenant,
        project=caller.project,
        definition=asked.definition,
        cursor=asked.cursor,
        limit=asked.limit,
    )


_OVER_LIMIT = "The answer is over its limit, or took too long."
LIST_SESSIONS = Call(
    path="/v1/sessions",
    question=SessionsQuestion,
    answer=SessionPage,
    work=_list_sessions,
    roles=("read",),
    summary="Sessions, the newest first",
    description="Each with its outcome, where one was computed.",
    refused={422: _OVER_LIMIT},
    reads_rows=True,
    of_projects=True,
)
SHOW_SESSION = Call(
    path="/v1/sessions/{session_id:path}",
    question=SessionQuestion,
    answer=SessionRecord,
    work=_show_session,
    roles=("read",),
    summary="A session with its events and rewards",
    description="A page of its events; the first page also says what is known of the session, what "
    "it is worth, and why.",
    refused={404: "There is no such session.", 422: _OVER_LIMIT},
    reads_rows=True,
    of_projects=True,
)

CALLS = [LIST_SESSIONS, SHOW_SESSION]
