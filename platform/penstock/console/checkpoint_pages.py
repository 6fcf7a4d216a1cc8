"""Pages of checkpoints: which there are, and of each its scores, where it serves, what it came from
and what came of it."""

from typing import Any

from penstock.channels.calls import LIST_CHANNELS, ChannelsQuestion
from penstock.channels.promotion_calls import TRACE_CHECKPOINT
from penstock.checkpoints.calls import LIST_CHECKPOINTS, CheckpointQuestion, CheckpointsQuestion
from penstock.console.charts import WIDTH, Interval, interval_chart
from penstock.console.page import ConsolePage, Content, page_sql
from penstock.console.visitor import Visitor
from penstock.lake.desk import Question

#: Normal intervals of the means: a look, not a test; the gate's own tests are on the verdict.
_SPREAD = 1.96


class CheckpointListQuestion(Question):
    """The newest first."""

    state: str | None = None


def _list(visitor: Visitor, question: CheckpointListQuestion) -> Content:
    listed = CheckpointsQuestion(state=question.state)  # type: ignore[arg-type]
    known = visitor.ask(LIST_CHECKPOINTS, listed).checkpoints[::-1]
    channels = visitor.ask(LIST_CHANNELS, ChannelsQuestion()).channels
    serving: dict[str, list[str]] = {}
    for channel in channels:
        for checkpoint in filter(None, (channel.checkpoint, channel.canary)):
            serving.setdefault(checkpoint, []).append(channel.channel)
    scores: dict[str, list[dict[str, Any]]] = {}
    for row in _scores(visitor, ""):
        scores.setdefault(row["checkpoint"], []).append(row)
    return {"checkpoints": known, "serving": serving, "scores": scores}


def _show(visitor: Visitor, question: CheckpointQuestion) -> Content:
    line = visitor.ask(TRACE_CHECKPOINT, question)
    scores = _scores(visitor, line.checkpoint.name)
    rows = [
        Interval(
            row["suite"],
            max(row["score"] - _SPREAD * row["spread"], 0.0) if row["spread"] else None,
            row["score"],
            min(row["score"] + _SPREAD * row["spread"], 1.0) if row["spread"] else None,
            note=f"{row['tasks']} tasks",
        )
        for row in scores
        if row["score"] is not None
    ]
    chart = interval_chart(
        rows,
        title="Scores by suite",
        description="Means over tasks, with 95 % intervals.",
        value_format=lambda value: f"{value:.2f}",
        width=WIDTH,
    )
    channels = visitor.ask(LIST_CHANNELS, ChannelsQuestion()).channels
    return {"line": line, "scores": scores, "scores_chart": chart, "channels": channels}


def _scores(visitor: Visitor, checkpoint: str) -> list[dict[str, Any]]:
    """By checkpoint and suite, at the version that each was tried at last; none for a key that
    reads no rows."""
    if not visitor.may("read"):
        return []
    sql = page_sql("penstock.console", "scores.sql")
    views = frozenset({"benchmark_scores"})
    return visitor.own_rows(sql, views, {"checkpoint": checkpoint})


PAGES = [
    ConsolePage(
        path="/checkpoints",
        title="Checkpoints",
        question=CheckpointListQuestion,
        work=_list,
        template="checkpoints.html.jinja",
        roles=("read", "promote"),
        group="Release",
        place=1,
        shortcut="k",
        reads_rows=True,
    ),
    ConsolePage(
        path="/checkpoints/{name}",
        title="Checkpoint",
        question=CheckpointQuestion,
        work=_show,
        template="checkpoint.html.jinja",
        roles=("read", "promote"),
        reads_rows=True,
    ),
]
