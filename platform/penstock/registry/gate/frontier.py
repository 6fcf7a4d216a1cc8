"""Quality against cost of the checkpoints scored on a suite, with their Pareto frontier. Drawn as
one self-contained HTML page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.core.errors import ExtraMissing
from penstock.registry.checkpoints.tables import benchmark_attempt, checkpoint

#: Metrics of cost. The first one that every attempt reports is used: attempts without a value are
#: often the long ones.
_COSTS = ("cost_usd", "completion_tokens", "latency_s")


@dataclass(frozen=True)
class FrontierPoint:
    checkpoint: str
    quality: float
    cost: float


@dataclass(frozen=True)
class FrontierPicture:
    """`cost` names the metric. `marks` labels some checkpoints, such as the candidate."""

    suite: str
    cost: str
    points: Sequence[FrontierPoint]
    marks: dict[str, str]

    def label(self, point: FrontierPoint) -> str:
        mark, name = self.marks.get(point.checkpoint), point.checkpoint
        return f"{name}  ({mark})" if mark else name


def frontier(points: Iterable[FrontierPoint]) -> list[FrontierPoint]:
    """The points that no other point matches in both, the cheapest first."""
    best: list[FrontierPoint] = []
    for point in sorted(points, key=lambda each: (each.cost, -each.quality, each.checkpoint)):
        if not best or point.quality > best[-1].quality:
            best.append(point)
    return best


def frontier_picture(
    database: Database, tenant: str, suite: str, version: str, marks: dict[str, str]
) -> FrontierPicture | None:
    """The picture of a suite, without withdrawn checkpoints. None if fewer than two have known
    costs."""
    columns = benchmark_attempt.c
    # Averaged by task first, so that each task counts once.
    by_task = (
        sa.select(
            columns.checkpoint,
            sa.func.avg(columns.score).label("score"),
            *(sa.func.avg(sa.cast(columns[name], sa.Float)).label(name) for name in _COSTS),
            *(_silent(columns[name]).label(f"{name}_silent") for name in _COSTS),
        )
        .where(columns.tenant == tenant, columns.suite == suite, columns.suite_version == version)
        .where(checkpoint.c.tenant == tenant, checkpoint.c.name == columns.checkpoint)
        .where(columns.status == "scored", checkpoint.c.state != "withdrawn")
        .group_by(columns.checkpoint, columns.task)
        .subquery()
    )
    means = [sa.func.avg(by_task.c[name]) for name in ("score", *_COSTS)]
    silent = [sa.func.sum(by_task.c[f"{name}_silent"]) for name in _COSTS]
    name = by_task.c.checkpoint
    with database.read() as connection:
        query = sa.select(name, *means, *silent).group_by(name).order_by(name)
        rows = connection.execute(query).all()
    for at, cost in enumerate(_COSTS, 2):
        points = [
            FrontierPoint(row[0], float(row[1]), float(row[at]))
            for row in rows
            if row[1] is not None and row[at + len(_COSTS)] == 0
        ]
        if len(points) > 1 and {*marks} <= {point.checkpoint for point in points}:
            return FrontierPicture(suite, cost, points, marks)
    return None


def _silent(column: sa.ColumnElement[object]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((column.is_(None), 1), else_=0))


def draw_html(pictures: Sequence[FrontierPicture], title: str) -> str:
    """Draw pictures as one page, scripts included. Raises ExtraMissing."""
    try:
        from plotly.graph_objects import Figure
        from plotly.io import to_html
    except ImportError as error:
        raise ExtraMissing(what="gate check --plot", extra="plots") from error
    from html import escape

    parts = []
    for at, picture in enumerate(pictures):
        labels = [escape(picture.label(point)) for point in picture.points]
        figure = Figure()
        line = {"mode": "lines", "line": {"shape": "hv", "dash": "dot"}, "name": "frontier"}
        dots = {"mode": "markers+text", "text": labels, "name": "checkpoints"}
        for points, style in ((frontier(picture.points), line), (picture.points, dots)):
            costs, scores = zip(*((point.cost, point.quality) for point in points), strict=True)
            figure.add_scatter(x=costs, y=scores, textposition="top center", **style)
        heading = escape(f"{picture.suite}: score against {picture.cost}")
        figure.update_layout(title=heading, xaxis_title=picture.cost, yaxis_title="score")
        parts.append(to_html(figure, full_html=False, include_plotlyjs=at == 0, div_id=f"s{at}"))
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"</head><body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )
