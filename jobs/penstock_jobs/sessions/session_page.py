"""A page of the list of sessions, and its filter."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.core.endpoint import Request
from penstock_jobs.rewards import OutcomeKind

LISTED_MAX = 1_000
Sorting = Literal["newest", "worst", "best", "failures", "tokens"]


class ListedSession(msgspec.Struct):
    """A session of the list. `outcome` to `definition_version` come from the newest run."""

    session_id: str
    first_ts: datetime
    last_ts: datetime
    user: str | None
    project: str | None
    checkpoint: str | None
    client: str | None
    model: str | None
    consent: str
    events: int
    user_messages: int
    model_calls: int
    tool_calls: int
    failed_tool_calls: int
    edits: int
    prompt_tokens: int
    completion_tokens: int
    parent_session: str | None
    link: str | None
    end_reason: str | None
    outcome: str | None
    reason: str | None
    value: float | None
    definition: str | None
    definition_version: str | None
    #: The first words of the user's first request.
    opening: str | None = None
    found: str | None = None


class SessionPage(msgspec.Struct):
    """A page of the list. `next` is the cursor of the next page; `searched` counts the sessions
    that were searched for words."""

    sessions: list[ListedSession]
    next: str | None
    searched: int | None = None


_SINCE = "With an event since this time, or this age, such as 24h."
_UNTIL = "Without an event since this time or age."
_WORDS = "With these words in a message, answer, output or path, in any case."
_BY = "Definition of the rewards, by name or version. Default: the one that ran last."
_SORT = "What stands first. By worth, those with a reward are listed; by failures, those with any."
_CURSOR = "The `next` of the page before."


class SessionsRequest(Request):
    """A filter of the list. By default outcomes follow the definition that ran last."""

    project: Annotated[str, Meta(description="Of this project.")] | None = None
    checkpoint: Annotated[str, Meta(description="Last served by this checkpoint.")] | None = None
    outcome: Annotated[OutcomeKind, Meta(description="With this outcome.")] | None = None
    since: Annotated[str, Meta(description=_SINCE)] | None = None
    until: Annotated[str, Meta(description=_UNTIL)] | None = None
    client: Annotated[str, Meta(description="Of this client, such as claude-code.")] | None = None
    model: Annotated[str, Meta(description="Last asked of this model.")] | None = None
    worth_min: Annotated[float, Meta(description="With at least this reward.")] | None = None
    worth_max: Annotated[float, Meta(description="With at most this reward.")] | None = None
    words: Annotated[str, Meta(description=_WORDS)] | None = None
    definition: Annotated[str, Meta(description=_BY, extra={"metavar": "NAME"})] | None = None
    sort: Annotated[Sorting, Meta(description=_SORT)] = "newest"
    cursor: Annotated[str, Meta(description=_CURSOR)] = ""
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX, description="Most sessions.")] = 50
