"""The endpoint of survival by its newest run, and its page in the console and as a file."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from markupsafe import Markup
from msgspec import Meta

from penstock.access.privacy.consents import TRAIN, decided_consents
from penstock.backends.terminal.options import since_us
from penstock.backends.terminal.output import time_of
from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.doors.console.charts import Interval, interval_chart
from penstock.doors.console.figures import share
from penstock.doors.console.page import Content, PageFrame, PageList, Visitor, assets, page_sql
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock_jobs.rewards.definition import SURVIVAL
from penstock_jobs.rewards.due_sessions import known_definitions
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.sessions.survival.counting import (
    FIRST_S,
    HORIZONS,
    SESSIONS,
    WEEK_S,
    Counts,
    LineGroup,
    LineShare,
    SurvivalAnswer,
    Tally,
    ThrownAway,
    ThrownEdit,
    answer_of,
    percent,
)

_sql = partial(page_sql, "penstock_jobs.sessions.survival")
SINCE = "90d"
_SINCE = "Only sessions with events since this time, or this age, such as 30d."
_CONSENTS = """select session_id, consent from sessions
    where "user" is not null and consent <> 'no_train'
      and session_id in (select session_id from chosen)"""


class SurvivalRequest(Request):
    """Sessions to count."""

    since: Annotated[str, Meta(description=_SINCE)] = SINCE


def _show(lake: Lake, caller: Caller, asked: SurvivalRequest) -> SurvivalAnswer:
    return answer_of(read_counts(lake, caller.tenant, asked.since))


def read_counts(lake: Lake, tenant: str, since: str) -> Counts:
    run = next((each for each in known_definitions(lake.database) if each.name == SURVIVAL), None)
    if run is None:
        return Counts(since)
    variables = {"version": run.version, "since_us": str(since_us(since, "since"))}
    variables |= {"checkpoint": "", "project": ""}
    chosen = {"chosen": page_sql("penstock_jobs.rewards", "chosen_sessions.sql")}
    views = frozenset({"outcomes", "sessions"})
    said = OwnQuery(_CONSENTS, views, made=chosen, variables=variables)
    query = OwnQuery(
        _sql("tallies.sql"),
        views | {"edits", "model_calls"},
        below=frozenset({"rewards"}),
        made=chosen | {"placed": _sql("placed.sql"), "written": _sql("written.sql")},
        others=(_sql("thrown_away.sql"), _sql("reasons.sql")),
        tables={"willing": _willing(lake, tenant, lake.query(said, tenant=tenant).arrow())},
        variables=variables | {"first_s": str(FIRST_S), "week_s": str(WEEK_S)},
    )
    answers = lake.query(query, tenant=tenant).tables()
    rows, thrown, reasons = (table.to_pylist() for table in answers)
    tallies = msgspec.convert(rows, list[Tally])
    tallies += [
        msgspec.structs.replace(tally, kind="source", label=SESSIONS)
        for tally in tallies
        if tally.kind == "all"
    ]
    unknown = {row["reason"]: round(row["lines"]) for row in reasons}
    return Counts(since, time_of(run.run_at), tallies, _thrown_away(thrown), unknown)


def _thrown_away(rows: list[Mapping[str, Any]]) -> ThrownAway:
    if not rows:
        return ThrownAway()
    names = ("edits", "lines", "completion_tokens")
    edits, lines, tokens = (round(rows[0][f"{name}_in_all"]) for name in names)
    return ThrownAway(edits, lines, tokens, msgspec.convert(rows, list[ThrownEdit]))


def _willing(lake: Lake, tenant: str, said: pa.Table) -> pa.Table:
    """Choose sessions that allow training, by what they say and what was decided."""
    decided = decided_consents(lake, tenant, said["session_id"].to_pylist())
    names = [
        name
        for name, consent in row_tuples(said, "session_id", "consent")
        if name not in decided.denied and (consent == TRAIN or name in decided.allowed)
    ]
    return pa.table({"session_id": pa.array(names, pa.string())})


SHOW_SURVIVAL = Endpoint(
    "GET /v1/survival",
    _show,
    ("read",),
    "How much of what agents wrote still stands",
    description="As the newest run of `penstock survival` found it, with bounds for what nobody"
    " can know.",
    refused={422: "The answer is over its limit, or took too long."},
    reads_rows=True,
)
ENDPOINTS: Endpoints = [SHOW_SURVIVAL]


PAGES = PageList("penstock_jobs.sessions.survival:pages/")


@PAGES.page(
    "/survival", "Survival", "survival.html.jinja", reads_rows=True, remembered=True,
    group="Production", place=2, shortcut="e",
)  # fmt: skip
def _page(visitor: Visitor, asked: SurvivalRequest) -> Content:
    return _content(visitor.call(SHOW_SURVIVAL, asked))


def survival_file(answer: SurvivalAnswer) -> str:
    style = Markup(assets().contents["console.css"].decode())  # our own
    template = "penstock_jobs.sessions.survival:pages/file.html.jinja"
    return PageFrame("Survival", "/survival").render(template, {**_content(answer), "style": style})


def _content(answer: SurvivalAnswer) -> Content:
    after = [(HORIZONS[own.horizon_s], own) for own in answer.all.shares]
    drawn = [("All", "Lines that stand", after)]
    for kind, groups in answer.by.items():
        marks = [(group.label or "unknown", _after_week(group)) for group in groups]
        if len(groups) > 1:
            title = f"Lines that stand after a week, by {kind}"
            drawn.append((f"By {kind}, after a week", title, marks))
    charts = [
        (name, _chart(title, known))
        for name, title, marks in drawn
        if (known := [(label, own) for label, own in marks if own.unknown < own.lines])
    ]
    return {"answer": answer, "horizons": HORIZONS, "percent": percent, "charts": charts}


def _after_week(group: LineGroup) -> LineShare:
    return next(own for own in group.shares if own.horizon_s == WEEK_S)


def _chart(title: str, marks: list[tuple[str, LineShare]]) -> Markup:
    rows = [
        Interval(label, own.low, None, own.high, note=f"of {own.lines:,} lines")
        for label, own in marks
    ]
    about = "From all that is unknown gone to all of it standing."
    return interval_chart(rows, title=title, description=about, value_format=share)
