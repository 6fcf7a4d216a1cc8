"""Pages of rewards: how they are spread and how sessions ended, what checkpoints do otherwise than
the one before, and two definitions on the same sessions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from penstock.console.charts import WIDTH, Bar, Interval, histogram, interval_chart, share_bar
from penstock.console.figures import duration, share, signed
from penstock.console.page import Content, PageList, Visitor, page_sql
from penstock.errors import InvalidInput
from penstock.lake.desk import Question
from penstock.lake.query import OwnQuery
from penstock.terminal.options import since_us
from penstock_jobs.rewards.calls import (
    COMPARE_DEFINITIONS,
    LIST_DEFINITIONS,
    SHOW_RATES,
    DefinitionAnswer,
    DefinitionPair,
    DefinitionsQuestion,
    RatesQuestion,
)
from penstock_jobs.rewards.rates import RATES

PAGES = PageList("penstock_jobs.rewards:pages/")

Row = dict[str, Any]
_PACKAGE = "penstock_jobs.rewards"
_TONES = {
    "scored": "good", "negative_by_rule": "bad", "censored": "warn", "excluded": "s5",
    "pending": "info", "invalid": "bad",
}  # fmt: skip
#: Of a reward, in the order in which pages have them.
STATES = ("scored", "pending", "censored", "invalid", "excluded")
_BINS = 24
_HISTOGRAMS_MAX = 60
_LABEL_CHARS = 20
_GROUPS = ("checkpoint", "project", "day")


class RewardsQuestion(Question):
    """`since` is a time, or an age such as 7d. The reward `name` is drawn at all horizons."""

    definition: str = ""
    name: str = ""
    checkpoint: str = ""
    project: str = ""
    since: str = ""


class MonitorsQuestion(Question):
    """Without names the newest checkpoint is compared with the one before."""

    definition: str = ""
    before: str = ""
    after: str = ""
    since: str = ""


class ComparisonPage(Question):
    before: str = ""
    after: str = ""


def _chosen(visitor: Visitor, text: str) -> tuple[DefinitionAnswer | None, list[DefinitionAnswer]]:
    """The definition of this name or version, else the one that ran last; and all of them. Raises
    InvalidInput."""
    known = visitor.ask(LIST_DEFINITIONS, DefinitionsQuestion()).definitions
    if not text:
        return next((each for each in known if each.name == "default"), None) or next(
            iter(known), None
        ), known
    found = next((each for each in known if text in (each.name, each.version)), None)
    if found is None:
        raise InvalidInput(what=f"The definition {text[:100]!r}", why="it has not run")
    return found, known


def _rows(visitor: Visitor, file: str, variables: dict[str, str]) -> list[Row]:
    return visitor.own_rows(page_sql(_PACKAGE, file), frozenset({"outcomes"}), variables)


def chosen_rewards(variables: Mapping[str, str], *files: str) -> OwnQuery:
    """These statements, over the tables `chosen`, of sessions, and `reward_groups`. `variables` are
    `version`, `checkpoint`, `project` and `since_us`; what is empty chooses all."""
    tables = {"chosen": "chosen_sessions.sql", "reward_groups": "reward_groups.sql"}
    sql, *others = (page_sql(_PACKAGE, file) for file in files)
    return OwnQuery(
        sql,
        frozenset({"outcomes", "sessions"}),
        below=frozenset({"rewards"}),
        made={name: page_sql(_PACKAGE, file) for name, file in tables.items()},
        others=tuple(others),
        variables=variables,
    )


def _since(text: str) -> str:
    return str(since_us(text, "since")) if text else ""


# How rewards are spread


@PAGES.page(
    "/rewards",
    "Rewards",
    "rewards.html.jinja",
    group="Training",
    place=0,
    shortcut="w",
    reads_rows=True,
    remembered=True,
)
def _rewards(visitor: Visitor, question: RewardsQuestion) -> Content:
    definition, known = _chosen(visitor, question.definition)
    content: dict[str, Any] = {"definition": definition, "definitions": known}
    if definition is None:
        return content
    variables = {
        "version": definition.version,
        "checkpoint": question.checkpoint,
        "project": question.project,
        "since_us": _since(question.since),
        "name": question.name,
    }
    statements = ("outcome_groups.sql", "reward_states.sql", "reward_bins.sql")
    ends, states, bins = visitor.own_answers(chosen_rewards(variables, *statements))
    groups: dict[str, list[Row]] = {kind: [] for kind in _GROUPS}
    for row in ends:
        groups[row["kind"]].append(row)
    return content | {
        "groups": groups,
        "group_charts": {kind: _worth_chart(kind, rows) for kind, rows in groups.items()},
        "sessions": max((row["of_all"] for row in groups["checkpoint"]), default=0),
        "histograms": reward_charts(bins, all_horizons=bool(question.name)),
        "states": state_bars(states),
    }


def reward_charts(
    rows: Iterable[Row], *, all_horizons: bool = False
) -> list[tuple[str, Row, Markup]]:
    """Of each reward its label, what is known of it, and its histogram: at the longest horizon that
    at least half of its sessions have, or at all of them."""
    found: dict[str, dict[int | None, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["name"]][row["horizon_s"]].append(row)
    charts = []
    for name, by_horizon in found.items():
        horizons = sorted(by_horizon, key=lambda horizon: horizon or 0)
        if not all_horizons:
            known = {horizon: by_horizon[horizon][0]["sessions"] for horizon in horizons}
            horizons = [each for each in horizons if 2 * known[each] >= max(known.values())][-1:]
        for horizon_s in horizons:
            own = by_horizon[horizon_s]
            label = name if horizon_s is None else f"{name} after {duration(horizon_s)}"
            chart = histogram(_bins(own), title=f"How {label} is spread", value_format=_value)
            charts.append((label, own[0], chart))
    return charts[:_HISTOGRAMS_MAX]


def _bins(rows: list[Row]) -> list[tuple[float, float, float]]:
    low, high = rows[0]["low"], rows[0]["high"]
    counts = {row["bin"]: row["in_bin"] for row in rows}
    width = (high - low) / _BINS or 0.01  # all values may be the same
    return [
        (low + number * width, low + (number + 1) * width, counts.get(number, 0))
        for number in range(_BINS)
    ]


def state_bars(rows: Iterable[Row]) -> list[tuple[str, dict[str, int], Markup]]:
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        found[row["name"]][row["state"]] = row["rewards"]
    bars = []
    for name, counts in found.items():
        shares = [Bar(state, counts[state], _TONES[state]) for state in STATES if state in counts]
        bars.append((name, counts, share_bar(shares, title=f"States of {name}", with_legend=False)))
    return bars


def _worth_chart(kind: str, rows: list[Row]) -> Markup:
    marks = [
        Interval(
            (row["label"] or "none")[:_LABEL_CHARS],
            row["low"],
            row["median"],
            row["high"],
            note=f"{row['scored'] + row['negative_by_rule']} sessions",
        )
        for row in rows
        if row["median"] is not None
    ]
    return interval_chart(
        marks,
        title=f"What sessions were worth, by {kind}",
        description="The median, and the tenth and ninetieth percentiles.",
        value_format=_value,
        width=WIDTH,
    )


def _value(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


# What checkpoints do otherwise


@PAGES.page(
    "/rewards/monitors", "Monitors", "monitors.html.jinja", reads_rows=True, remembered=True
)
def _monitors(visitor: Visitor, question: MonitorsQuestion) -> Content:
    definition, known = _chosen(visitor, question.definition)
    content: dict[str, Any] = {"definition": definition, "definitions": known, "answer": None}
    if definition is None:
        return content
    asked = RatesQuestion(
        definition=definition.version,
        since=question.since or None,
        before=question.before or None,
        after=question.after or None,
    )
    answer = visitor.ask(SHOW_RATES, asked)
    examples: defaultdict[str, list[Row]] = defaultdict(list)
    if answer.after is not None:
        variables = {
            "version": definition.version,
            "checkpoint": answer.after,
            "since_us": _since(question.since),
        }
        for row in _rows(visitor, "monitor_sessions.sql", variables):
            examples[row["rate"]].append(row)
    return content | {
        "answer": answer,
        "names": [*RATES],
        "examples": examples,
        "alarms": [each for each in answer.changes if each.verdict == "moved"],
        "unknown": [each for each in answer.changes if each.verdict == "unknown"],
        "chart": interval_chart(
            [
                Interval(
                    change.rate.replace("_", " "),
                    change.low,
                    change.after - change.before,
                    change.high,
                    tone="bad" if change.verdict == "moved" else "",
                    note=f"{share(change.before)} → {share(change.after)}",
                )
                for change in answer.changes
                if change.low is not None and change.before is not None and change.after is not None
            ],
            title=f"From {answer.before} to {answer.after}",
            description="Differences of rates with their intervals.",
            value_format=signed,
        ),
    }


# Two definitions


@PAGES.page(
    "/rewards/comparison",
    "Two definitions",
    "comparison.html.jinja",
    reads_rows=True,
    remembered=True,
)
def _compare(visitor: Visitor, question: ComparisonPage) -> Content:
    known = visitor.ask(LIST_DEFINITIONS, DefinitionsQuestion()).definitions
    content: dict[str, Any] = {"definitions": known, "compared": None, "chart": ""}
    if not (question.before and question.after):
        return content
    pair = DefinitionPair(before=question.before, after=question.after)
    compared = visitor.ask(COMPARE_DEFINITIONS, pair)
    rows = [
        Interval(
            row["name"]
            if row["horizon_s"] is None
            else f"{row['name']} {duration(row['horizon_s'])}",
            min(row["before"], row["after"]),
            row["after"],
            max(row["before"], row["after"]),
            margin=row["before"],
            note=signed(row["difference"]),
        )
        for row in compared.rewards
        if row["before"] is not None and row["after"] is not None
    ]
    chart = interval_chart(
        rows,
        title="Means by both definitions",
        description="The dot is the second definition, the stroke the first.",
        value_format=_value,
    )
    return content | {"compared": compared, "chart": chart}
