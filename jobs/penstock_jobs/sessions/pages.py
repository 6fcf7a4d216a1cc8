"""The pages of sessions: the list, a session, its tokens, two side by side, a download. And two
checkpoints side by side: benchmark, production, costs and example sessions."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, get_args

import msgspec
from markupsafe import Markup
from msgspec import Meta, Raw

from penstock.core.endpoint import Request
from penstock.core.errors import InvalidInput
from penstock.core.settings import MIB
from penstock.doors.console.charts import Interval, interval_chart
from penstock.doors.console.figures import signed, url
from penstock.doors.console.page import (
    Content,
    Download,
    PageFrame,
    PageList,
    Redirect,
    Visitor,
    assets,
    page_sql,
)
from penstock.doors.settings import ConsoleSettings
from penstock_jobs.benchmarks.endpoints import COMPARE_RESULTS, ComparisonRequest
from penstock_jobs.benchmarks.summary import CheckpointComparison
from penstock_jobs.rewards import OutcomeKind
from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.endpoints import LIST_DEFINITIONS, DefinitionsRequest
from penstock_jobs.rewards.pages import RatesPage, rate_chart, shown_rates
from penstock_jobs.sessions.edit_fates import SHOW_HISTORY, EditFate, fates_of, read_whole_session
from penstock_jobs.sessions.endpoints import LIST_SESSIONS
from penstock_jobs.sessions.entries import EntryPlace, Rewards, entries_of, request_of
from penstock_jobs.sessions.reading import (
    SHOW_SESSION,
    SessionRecord,
    SessionRequest,
    neighbours_query,
    sql_of,
)
from penstock_jobs.sessions.session_page import ListedSession, SessionsRequest, Sorting
from penstock_jobs.sessions.tokens import TokenTexts, token_calls

PAGES = PageList("penstock_jobs.sessions:pages/", reads_rows=True)
_LISTED = 50
_PART_EVENTS = 150
#: Payloads in a file: it is made in the service. `penstock sessions export` has no such bound.
_FILE_BYTES_MAX = 8 * MIB
_BESIDE_EVENTS = 300
#: A session without events for so long is no longer live.
_LIVE_SECONDS = 1800

Number = Annotated[int, Meta(ge=0, le=2**31)]


class ShownSession(SessionsRequest, kw_only=True):
    """A part of a session from `cursor` on, after so many events and turns, with the fates of edits
    at `horizon_s`. The other fields are the filter of the list that it was opened from."""

    session_id: str
    horizon_s: Number | None = None
    events: Number = 0
    turn: Number = 0


class PairRequest(Request):
    left: str
    right: str | None = None


class TaskRequest(Request):
    task: str
    before: str
    after: str


def at_once(first: Callable[[], Any], *others: Callable[[], Any]) -> list[Any]:
    """Call functions in parallel and return their results. Raises the first error at the end."""
    if not others:
        return [first()]
    with ThreadPoolExecutor(1 + len(others), "at-once") as threads:
        results = [threads.submit(copy_context().run, work) for work in (first, *others)]
        return [result.result() for result in results]


@PAGES.page("/sessions", "Sessions", "list.html.jinja", group="Production", place=1, shortcut="s")
def _list(visitor: Visitor, asked: SessionsRequest) -> Content:
    page = visitor.call(LIST_SESSIONS, msgspec.structs.replace(asked, limit=_LISTED))
    fields = list_fields(asked)
    return {
        "sessions": page.sessions,
        "searched": page.searched,
        "next": page.next,
        "fields": fields,
        "filtered": bool(fields),
        "outcomes": get_args(OutcomeKind),
        "sortings": get_args(Sorting),
    }


def list_fields(asked: SessionsRequest) -> dict[str, Any]:
    names = [name for name in SessionsRequest.__struct_fields__ if name not in ("cursor", "limit")]
    fields = {name: value for name in names if (value := getattr(asked, name)) is not None}
    return {name: value for name, value in fields.items() if value != "newest"}


# One session


@PAGES.page("/sessions/{session_id:path}", "Session", "session.html.jinja")
def _show(visitor: Visitor, asked: ShownSession) -> Content:
    (record, part, fates), (beside, related) = at_once(
        partial(_part, visitor, asked), partial(_around, visitor, asked)
    )
    place = EntryPlace(asked.events, asked.turn)
    rewards = Rewards(record.rewards, asked.horizon_s)
    is_live = _is_live(visitor, record)
    entries = list(
        entries_of(part.events, rewards, fates, place, last=not part.next and not is_live)
    )
    fields = list_fields(asked)
    return {
        "session": record.session,
        "record": record,
        "entries": entries,
        "request": request_of(record.events),
        "definitions": visitor.call(LIST_DEFINITIONS, DefinitionsRequest()).definitions,
        "terms": _terms(record),
        "next": part.next,
        "tail": part.end or asked.cursor if is_live and not part.next else None,
        "place": {"events": place.events, "turn": place.turn},
        "fields": fields | ({"horizon_s": asked.horizon_s} if asked.horizon_s else {}),
        "list_fields": fields,
        "is_live": is_live,
        "horizons": [horizon for horizon in EditParameters().horizons_s if horizon],
        "beside": beside,
        "children": [row for row in related if row["relation"] == "child"],
        "attempts": [row for row in related if row["relation"] == "attempt"],
    }


def _part(
    visitor: Visitor, asked: ShownSession
) -> tuple[SessionRecord, SessionRecord, dict[str, EditFate]]:
    question = SessionRequest(
        session_id=asked.session_id, definition=asked.definition, limit=_PART_EVENTS
    )
    if not asked.cursor:
        shown = visitor.call(SHOW_HISTORY, question)
        fates = fates_of(visitor, shown.record, shown.record.events, asked.horizon_s, shown.rows)
        return shown.record, shown.record, fates
    record = visitor.call(SHOW_SESSION, question)
    question = msgspec.structs.replace(question, definition=None, cursor=asked.cursor)
    part = visitor.call(SHOW_SESSION, question)
    return record, part, fates_of(visitor, record, part.events, asked.horizon_s)


def _is_live(visitor: Visitor, record: SessionRecord) -> bool:
    session = record.session
    if session is None or session["end_reason"]:
        return False
    # What is old may have been imported just now.
    heard = min(session["last_received_at"], session["last_ts"])
    return bool(visitor.clock.now_us() / 1_000_000 - heard.timestamp() < _LIVE_SECONDS)


def _around(
    visitor: Visitor, asked: ShownSession
) -> tuple[dict[str, str | None], list[dict[str, Any]]]:
    """The neighbours of a session in the list, and its related sessions. Later parts need neither;
    a list of a search has no neighbours."""
    nobody: dict[str, str | None] = {"newer": None, "older": None}
    if asked.cursor:
        return nobody, []
    if asked.words:
        return nobody, _related(visitor, asked.session_id)
    query = neighbours_query(visitor.lake, asked, asked.session_id)
    query = replace(query, others=(sql_of("relations.sql"),))
    beside, found = visitor.own_answers(query)
    related = _relations(visitor, asked.session_id, found)
    return nobody | {row["side"]: row["session_id"] for row in beside}, related


def _related(visitor: Visitor, session: str) -> list[dict[str, Any]]:
    below = frozenset({"sessions"})
    sql, variables = sql_of("relations.sql"), {"session": session}
    found = visitor.own_rows(sql, frozenset(), variables, below=below)
    return _relations(visitor, session, found)


def _relations(
    visitor: Visitor, session: str, found: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    if not found:
        return []
    names = [session, *(row["session_id"] for row in found)]
    variables = {"session": session, "sessions": msgspec.json.encode(names).decode()}
    return visitor.own_rows(sql_of("related.sql"), frozenset({"sessions"}), variables, names)


@PAGES.page("/session-tokens/{session_id:path}", "Tokens", "tokens.html.jinja")
def _tokens(visitor: Visitor, asked: SessionRequest) -> Content:
    record = visitor.call(SHOW_SESSION, msgspec.structs.replace(asked, limit=_PART_EVENTS))
    named = visitor.lake.settings.room(ConsoleSettings).console_tokenizers
    calls = token_calls(record.events, TokenTexts(named))
    return {
        "session_id": asked.session_id,
        "calls": calls,
        "without_texts": any(
            call.tokens and not any(token.text for token in call.tokens) for call in calls
        ),
        "next": record.next,
    }


@PAGES.page("/session-pairs", "Two sessions", "pair.html.jinja")
def _pair(visitor: Visitor, asked: PairRequest) -> Content:
    names = [asked.left] if asked.right is None else [asked.left, asked.right]
    sides = at_once(*(partial(_side, visitor, name) for name in names))
    # Only a session with a task has other attempts.
    related = _related(visitor, asked.left) if sides[0]["session"]["task_id"] else []
    return {"sides": sides, "attempts": [row for row in related if row["relation"] == "attempt"]}


@PAGES.page("/session-tasks", "Attempts at a task", "task.html.jinja")
def _task(visitor: Visitor, asked: TaskRequest) -> Content | Redirect:
    variables = {"task": asked.task, "before": asked.before, "after": asked.after}
    rows = visitor.own_rows(sql_of("attempts.sql"), frozenset({"sessions"}), variables)
    newest = {row["checkpoint"]: row["session_id"] for row in rows}
    names = (asked.before, asked.after)
    if all(name in newest for name in names):
        left, right = (newest[name] for name in names)
        return Redirect(url("/session-pairs", left=left, right=right))
    return {"missing": [name for name in names if name not in newest], "found": newest}


def _side(visitor: Visitor, session: str) -> dict[str, Any]:
    question = SessionRequest(session_id=session, limit=_BESIDE_EVENTS)
    shown = visitor.call(SHOW_HISTORY, question)
    record = shown.record
    entries = entries_of(
        record.events,
        Rewards(record.rewards),
        fates_of(visitor, record, record.events, None, shown.rows),
        EntryPlace(),
        last=not record.next,
    )
    content = {"record": record, "session": record.session, "terms": _terms(record)}
    return content | {"entries": list(entries)}


def _terms(record: SessionRecord) -> set[str]:
    terms = record.explanation.terms if record.explanation else []
    return {"reward", *(term.name for term in terms)}


# A file to share


@PAGES.page("/session-file/{session_id:path}", "Session")
def _file(visitor: Visitor, asked: SessionRequest) -> Download:
    record = read_whole_session(visitor, asked.session_id, bytes_max=_FILE_BYTES_MAX)
    fates: dict[str, EditFate] = {}
    for start in range(0, len(record.events), _PART_EVENTS):
        part = record.events[start : start + _PART_EVENTS]
        fates |= fates_of(visitor, record, part)
    # The rules may be stricter now than at ingest.
    for event in record.events:
        event.payload = Raw(visitor.lake.redactor.mask_line(bytes(event.payload))[0])
    rewards, place = Rewards(record.rewards), EntryPlace()
    content = {
        "record": record,
        "session": record.session,
        "entries": list(entries_of(record.events, rewards, fates, place, last=True)),
        "terms": _terms(record),
        "style": Markup(assets().contents["console.css"].decode()),  # our own
    }
    html = PageFrame("Session", "/", visitor).render(
        "penstock_jobs.sessions:pages/file.html.jinja", content
    )
    return Download(f"session-{asked.session_id}.html", "text/html; charset=utf-8", html.encode())


# Two checkpoints


_EXAMPLES = 5
_score = partial(signed, digits=2)


@PAGES.page(
    "/compared", "Compared", "compared.html.jinja", remembered=True, group="Release", place=3
)
def _compared(visitor: Visitor, asked: RatesPage) -> Content:
    *_, rates = shown_rates(visitor, asked)
    if rates is None or rates.before is None or rates.after is None:
        return {"rates": None}
    pair = (rates.before, rates.after)
    by_name = {each["checkpoint"]: each for each in rates.checkpoints}
    costs = visitor.own_rows(
        page_sql("penstock_jobs.sessions", "checkpoint_costs.sql"),
        frozenset({"sessions"}),
        {"before": pair[0], "after": pair[1]},
    )
    return {
        "rates": rates,
        "pair": pair,
        "names": [name for name in by_name if name],
        "suites": (suites := _suites(visitor, *pair)),
        "suite_chart": _suite_chart(suites),
        "rate_chart": rate_chart(rates),
        "worth": _worth(*(by_name[name]["means"] for name in pair)),
        "costs": {row["checkpoint"]: row for row in costs},
        "examples": [_examples(visitor, name, asked) for name in pair],
    }


def _suites(visitor: Visitor, before: str, after: str) -> list[CheckpointComparison]:
    """Compare at each suite that both have results of at common tasks."""
    sql = page_sql("penstock_jobs.benchmarks", "suites.sql")
    compared = []
    for row in visitor.own_rows(sql, frozenset({"benchmark_scores"})):
        question = ComparisonRequest(suite=row["suite"], before=before, after=after)
        try:
            compared.append(visitor.call(COMPARE_RESULTS, question))
        except InvalidInput:
            continue
    return [each for each in compared if each.tasks]


def _suite_chart(suites: list[CheckpointComparison]) -> object:
    rows = [
        Interval(
            each.suite, each.lower, each.difference, each.upper, note=f"{len(each.tasks)} tasks"
        )
        for each in suites
        if each.difference is not None
    ]
    about = "Differences of the means with 95 % intervals, and the number of tasks."
    return interval_chart(rows, title="Benchmark", description=about, value_format=_score)


def _worth(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Both means of each reward, at the longest horizon that both know."""
    sides = [
        {(mean["name"], mean["horizon_s"]): mean for mean in means} for means in (before, after)
    ]
    rows: dict[str, tuple[Any, ...]] = {}
    for key in sorted(sides[0].keys() & sides[1].keys(), key=lambda key: (key[0], key[1] or 0)):
        own, other = sides[0][key], sides[1][key]
        if own["value"] is not None and other["value"] is not None:
            rows[key[0]] = (*key, own, other)
    return list(rows.values())


def _examples(visitor: Visitor, checkpoint: str, asked: RatesPage) -> dict[str, Any]:
    """The least and the most worth of a checkpoint's sessions."""

    def listed(sort: Any) -> list[ListedSession]:
        chosen = SessionsRequest(
            checkpoint=checkpoint, since=asked.since, sort=sort, limit=_EXAMPLES
        )
        return visitor.call(LIST_SESSIONS, chosen).sessions

    return {"checkpoint": checkpoint, "worst": listed("worst"), "best": listed("best")}
