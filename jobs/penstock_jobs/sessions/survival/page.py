"""The page of survival, in the console and as a file."""

from markupsafe import Markup

from penstock.doors.console.charts import Interval, interval_chart
from penstock.doors.console.figures import share
from penstock.doors.console.page import Content, PageList, Visitor
from penstock.doors.console.templates import PageFrame, assets
from penstock_jobs.sessions.survival.counting import (
    HORIZONS,
    WEEK_S,
    LineGroup,
    LineShare,
    SurvivalAnswer,
    percent,
)
from penstock_jobs.sessions.survival.endpoints import SHOW_SURVIVAL, SurvivalRequest

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
