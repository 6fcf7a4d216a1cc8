"""Pages of rewards: distributions, monitors of checkpoints, two definitions, and labels."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from markupsafe import Markup

from penstock.backends.terminal.options import since_us
from penstock.core.endpoint import Request
from penstock.core.errors import InvalidInput, one_line
from penstock.doors.console.charts import WIDTH, Bar, Interval, histogram, interval_chart, share_bar
from penstock.doors.console.figures import duration, share, signed, url
from penstock.doors.console.page import Content, PageList, Redirect, Visitor, page_sql
from penstock.lake.query.lake_query import OwnQuery
from penstock_jobs.rewards.endpoints import (
    COMPARE_DEFINITIONS,
    LIST_DEFINITIONS,
    SHOW_RATES,
    DefinitionAnswer,
    DefinitionPair,
    DefinitionsRequest,
    RatesAnswer,
    RatesRequest,
)
from penstock_jobs.rewards.followups.label_endpoints import (
    ANSWERS,
    KEYS,
    LABEL,
    LABEL_RATES,
    NEXT_LABEL,
    UNDO,
    EffectRequest,
    LabelOrder,
    NextLabelRequest,
    UndoRequest,
)
from penstock_jobs.rewards.rates import RATES

PAGES = PageList("penstock_jobs.rewards:pages/")

Row = dict[str, Any]
_PACKAGE = "penstock_jobs.rewards"
_TONES = {
    "scored": "good", "negative_by_rule": "bad", "censored": "warn", "excluded": "s5",
    "pending": "info", "invalid": "bad",
}  # fmt: skip
#: States of a reward, in the order of pages.
STATES = ("scored", "pending", "censored", "invalid", "excluded")
_BINS = 24
_HISTOGRAMS_MAX = 60


class RewardsRequest(Request):
    """Filters. `since` is a time, or an age such as 7d. `name` shows a reward at all horizons."""

    definition: str = ""
    name: str = ""
    checkpoint: str = ""
    project: str = ""
    since: str = ""


class RatesPage(RatesRequest):
    """Rates by a definition that the page chooses if nobody names one."""

    definition: str = ""


class ComparisonPage(Request):
    before: str = ""
    after: str = ""


class LabelForm(LabelOrder):
    checkpoint: str | None = None


class UndoForm(UndoRequest):
    checkpoint: str | None = None


def definitions_of(visitor: Visitor) -> list[DefinitionAnswer]:
    return visitor.call(LIST_DEFINITIONS, DefinitionsRequest()).definitions


def chosen_definition(known: list[DefinitionAnswer], text: str) -> DefinitionAnswer | None:
    """Find a definition by name or version, else the default, else the newest run.

    Raises InvalidInput."""
    if not text:
        known = [each for each in known if each.name == "default"] or known
        return known[0] if known else None
    for each in known:
        if text in (each.name, each.version):
            return each
    raise InvalidInput(what=f"The definition {text[:100]!r}", why="it has not run")


def chosen_rewards(variables: Mapping[str, str], *files: str) -> OwnQuery:
    """Make a query of these statements over the tables `chosen` and `reward_groups`.

    `variables` are `version`, `checkpoint`, `project` and `since_us`; empty ones choose all."""
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


def shown_rates(
    visitor: Visitor, asked: RatesPage
) -> tuple[list[DefinitionAnswer], DefinitionAnswer | None, RatesAnswer | None]:
    """Return all definitions, the chosen one, and rates by it."""
    known = definitions_of(visitor)
    definition = chosen_definition(known, asked.definition)
    if definition is None:
        return known, None, None
    asked = msgspec.structs.replace(asked, definition=definition.version)
    return known, definition, visitor.call(SHOW_RATES, asked)


def _since(text: str | None) -> str:
    return str(since_us(text, "since")) if text else ""


@PAGES.page(
    "/rewards", "Rewards", "rewards.html.jinja", reads_rows=True, remembered=True,
    group="Training", place=0, shortcut="w",
)  # fmt: skip
def _rewards(visitor: Visitor, request: RewardsRequest) -> Content:
    known = definitions_of(visitor)
    definition = chosen_definition(known, request.definition)
    content: dict[str, Any] = {"definition": definition, "definitions": known}
    if definition is None:
        return content
    variables = msgspec.structs.asdict(request)
    variables |= {"version": definition.version, "since_us": _since(request.since)}
    statements = ("outcome_groups.sql", "reward_states.sql", "reward_bins.sql")
    ends, states, bins = visitor.own_answers(chosen_rewards(variables, *statements))
    groups: dict[str, list[Row]] = {kind: [] for kind in ("checkpoint", "project", "day")}
    for row in ends:
        groups[row["kind"]].append(row)
    return content | {
        "groups": groups,
        "group_charts": {kind: _worth_chart(kind, rows) for kind, rows in groups.items()},
        "sessions": max((row["of_all"] for row in groups["checkpoint"]), default=0),
        "histograms": reward_charts(bins, all_horizons=bool(request.name)),
        "states": state_bars(states),
    }


def reward_charts(
    rows: Iterable[Row], *, all_horizons: bool = False
) -> list[tuple[str, Row, Markup]]:
    """Return label, facts and histogram of each reward.

    They are at the longest horizon that half of its sessions have, or at all horizons."""
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
            label = _at_horizon(name, horizon_s)
            chart = histogram(_bins(own), title=f"Distribution of {label}", value_format=_value)
            charts.append((label, own[0], chart))
    return charts[:_HISTOGRAMS_MAX]


def _at_horizon(name: str, horizon_s: int | None) -> str:
    return name if horizon_s is None else f"{name} after {duration(horizon_s)}"


def _bins(rows: list[Row]) -> list[tuple[float, float, float]]:
    low, high = rows[0]["low"], rows[0]["high"]
    counts = {row["bin"]: row["in_bin"] for row in rows}
    width = (high - low) / _BINS or 0.01  # all values may be equal
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
        bars.append((name, counts, share_bar(shares, title=f"States of {name}")))
    return bars


def _worth_chart(kind: str, rows: list[Row]) -> Markup:
    marks = [
        Interval(
            (row["label"] or "none")[:20],
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
        title=f"Value of sessions by {kind}",
        means=True,
        description="Median, p10 and p90.",
        value_format=_value,
        width=WIDTH,
    )


def _value(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


@PAGES.page(
    "/rewards/monitors", "Monitors", "monitors.html.jinja", reads_rows=True, remembered=True
)
def _monitors(visitor: Visitor, request: RatesPage) -> Content:
    known, definition, answer = shown_rates(visitor, request)
    content: Content = {"definition": definition, "definitions": known, "answer": answer}
    if definition is None or answer is None:
        return content
    examples: defaultdict[str, list[Row]] = defaultdict(list)
    if answer.after is not None:
        variables = {
            "version": definition.version,
            "checkpoint": answer.after,
            "since_us": _since(request.since),
        }
        sql = page_sql(_PACKAGE, "monitor_sessions.sql")
        for row in visitor.own_rows(sql, frozenset({"outcomes"}), variables):
            examples[row["rate"]].append(row)
    return {
        **content,
        "names": [*RATES],
        "examples": examples,
        "alarms": [each for each in answer.changes if each.verdict == "moved"],
        "unknown": [each for each in answer.changes if each.verdict == "unknown"],
        "chart": rate_chart(answer),
    }


def rate_chart(answer: RatesAnswer) -> Markup:
    """Draw the differences of rates that have an interval."""
    rows = [
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
    ]
    return interval_chart(
        rows,
        title=f"From {answer.before} to {answer.after}",
        description="Differences of rates with their intervals.",
        value_format=signed,
    )


@PAGES.page(
    "/rewards/comparison", "Two definitions", "comparison.html.jinja", reads_rows=True,
    remembered=True,
)  # fmt: skip
def _compare(visitor: Visitor, question: ComparisonPage) -> Content:
    content: dict[str, Any] = {
        "definitions": definitions_of(visitor),
        "compared": None,
        "chart": "",
    }
    if not (question.before and question.after):
        return content
    pair = DefinitionPair(before=question.before, after=question.after)
    compared = visitor.call(COMPARE_DEFINITIONS, pair)
    rows = [
        Interval(
            _at_horizon(row["name"], row["horizon_s"]),
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
        description="Dot: the second definition. Stroke: the first.",
        value_format=_value,
    )
    return content | {"compared": compared, "chart": chart}


@PAGES.page(
    "/labels", "Labels", "labels.html.jinja", reads_rows=True, remembered=True,
    group="Training", place=1, shortcut="m",
)  # fmt: skip
def _queue(visitor: Visitor, request: NextLabelRequest) -> Content:
    names, request = _of_known_definition(visitor, request)
    content = {
        "asked": request,
        "answers": [(key, label, ANSWERS[label]) for key, label in KEYS.items()],
        "may_label": visitor.may_call(LABEL),
        "definitions": names,
        "found": None,
        "problem": "",
    }
    try:
        return content | {"found": visitor.call(NEXT_LABEL, request)}
    except InvalidInput as error:
        return content | {"problem": one_line(error)}


AskedT = TypeVar("AskedT", NextLabelRequest, EffectRequest)


def _of_known_definition(visitor: Visitor, question: AskedT) -> tuple[list[str], AskedT]:
    """Return names of definitions, and the request with a known one.

    The default definition, which a request without a name asks for, need not have run."""
    names = list(dict.fromkeys(each.name for each in definitions_of(visitor)))
    if names and question.definition not in names:
        question = msgspec.structs.replace(question, definition=names[0])
    return names, question


@PAGES.form("/labels/give", "Label", reads_rows=True)
def _give(visitor: Visitor, form: LabelForm) -> Redirect:
    names = LabelOrder.__struct_fields__
    given = visitor.call(LABEL, LabelOrder(**{name: getattr(form, name) for name in names}))
    return _to_queue(form, f"Stored: {(given.label or '').replace('_', ' ')}. u undoes it.")


@PAGES.form("/labels/undo", "Undo")
def _take_back(visitor: Visitor, form: UndoForm) -> Redirect:
    taken = visitor.call(UNDO, UndoRequest(definition=form.definition))
    told = f"Your label of session {taken.session_id}, turn {taken.turn} was undone."
    return _to_queue(form, "".join(each if each.isprintable() else "?" for each in told))


def _to_queue(form: LabelForm | UndoForm, told: str) -> Redirect:
    return Redirect(url("/labels", definition=form.definition, checkpoint=form.checkpoint), told)


@PAGES.page(
    "/labels/rates", "Effect of labels", "label_rates.html.jinja", reads_rows=True, remembered=True
)
def _effect(visitor: Visitor, request: EffectRequest) -> Content:
    names, request = _of_known_definition(visitor, request)
    content = {"asked": request, "definitions": names, "effect": None, "problem": ""}
    try:
        effect = visitor.call(LABEL_RATES, request)
    except InvalidInput as error:
        return content | {"problem": one_line(error)}
    marks = []
    for each in effect.checkpoints[:40]:
        note = f"{'too few: ' if each.value is None else ''}{each.drawn} drawn"
        ends, name = (each.low, each.value, each.high), each.checkpoint or "several, or none"
        marks.append(Interval(name, *ends, margin=each.judged, note=note))
    chart = interval_chart(
        marks,
        title="Requests that left users dissatisfied",
        means=True,
        description="With 95 % intervals. Stroke: the uncorrected judge.",
        value_format=share,
    )
    return content | {"effect": effect, "checkpoints_chart": chart}
