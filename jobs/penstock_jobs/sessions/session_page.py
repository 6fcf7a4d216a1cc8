"""A page of the list of sessions, and what it can be asked with."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.endpoint import Request
from penstock_jobs.rewards import OutcomeKind

LISTED_MAX = 1_000


class ListedSession(msgspec.Struct):
    """`outcome` to `definition_version` are of the run that computed it last."""

    session_id: str
    first_ts: datetime
    last_ts: datetime
    user: str | None
    project: str | None
    checkpoint: str | None
    consent: str
    events: int
    user_messages: int
    model_calls: int
    tool_calls: int
    edits: int
    parent_session: str | None
    link: str | None
    end_reason: str | None
    outcome: str | None
    reason: str | None
    value: float | None
    definition: str | None
    definition_version: str | None
    found: str | None = None


class SessionPage(msgspec.Struct):
    """`next` is the cursor of the page that follows. `searched` says in how many sessions words
    were looked for."""

    sessions: list[ListedSession]
    next: str | None
    searched: int | None = None


_HEARD = "Heard of since: a time, or an age such as 24h."
_WORDS = "In a message, an answer, an output or a path, in any case."
_BY = "Rewards by this definition, by name or version; else by the one that ran last."
_BEHIND_PAGE = "Those behind: the `next` of a list before."


class SessionsRequest(Request):
    """Without a definition, outcomes are by the one that ran last."""

    project: Annotated[str, Meta(description="Of this project.")] | None = None
    checkpoint: Annotated[str, Meta(description="Served by this one last.")] | None = None
    outcome: Annotated[OutcomeKind, Meta(description="How they ended.")] | None = None
    since: Annotated[str, Meta(description=_HEARD)] | None = None
    until: Annotated[str, Meta(description="Not heard of since: a time, or an age.")] | None = None
    worth_min: Annotated[float, Meta(description="Worth so much at least.")] | None = None
    worth_max: Annotated[float, Meta(description="Worth so much at most.")] | None = None
    words: Annotated[str, Meta(description=_WORDS)] | None = None
    definition: Annotated[str, Meta(description=_BY, extra={"metavar": "NAME"})] | None = None
    cursor: Annotated[str, Meta(description=_BEHIND_PAGE)] = ""
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX, description="How many.")] = 50
