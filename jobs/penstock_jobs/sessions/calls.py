"""What can be asked of sessions: which there are, and one with its events and rewards."""

from typing import Annotated

from msgspec import Meta

from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.terminal.options import since_us
from penstock_jobs.rewards.outcomes import Kind
from penstock_jobs.sessions.session_list import (
    LISTED_MAX,
    ListFilter,
    SessionPage,
    list_sessions,
)
from penstock_jobs.sessions.session_record import EVENTS_MAX, SessionRecord, read_session


class SessionsQuestion(Question):
    """`since` and `until` are times, or ages such as 24h; `words` stand in a message, an answer, an
    output or a path, in any case; `definition` the name or version of the one whose
    outcomes count, else of the one that ran last; `cursor` the `next` of the page before."""

    project: str | None = None
    checkpoint: str | None = None
    outcome: Kind | None = None
    since: str | None = None
    until: str | None = None
    worth_min: float | None = None
    worth_max: float | None = None
    words: str | None = None
    definition: str | None = None
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX)] = 50


class SessionQuestion(Question):
    """`limit` is of events."""

    session_id: str
    definition: str | None = None
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = 200


def filter_of(asked: SessionsQuestion) -> ListFilter:
    """Raises InvalidInput."""
    return ListFilter(
        project=asked.project,
        checkpoint=asked.checkpoint,
        outcome=asked.outcome,
        since_us=since_us(asked.since, "since") if asked.since else None,
        until_us=since_us(asked.until, "until") if asked.until else None,
        worth_min=asked.worth_min,
        worth_max=asked.worth_max,
        words=asked.words,
        definition=asked.definition,
    )


def _list_sessions(lake: Lake, caller: Caller, asked: SessionsQuestion) -> SessionPage:
    return list_sessions(
        lake,
        caller.tenant,
        filter_of(asked),
        cursor=asked.cursor,
        limit=asked.limit,
    )


def _show_session(lake: Lake, caller: Caller, asked: SessionQuestion) -> SessionRecord:
    return read_session(
        lake,
        asked.session_id,
        caller.tenant,
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
)

CALLS = [LIST_SESSIONS, SHOW_SESSION]
