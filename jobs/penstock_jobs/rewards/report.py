"""Results of runs, sessions, checkpoints and judges, as shown in a terminal."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from penstock.backends.terminal.output import say, show_table, show_text, time_of
from penstock.core.visible_text import visible_line
from penstock_jobs.rewards.definition import NAME
from penstock_jobs.rewards.explanation import Explanation
from penstock_jobs.rewards.followups.dissatisfaction import Dissatisfaction
from penstock_jobs.rewards.followups.judge import Evaluation, Quality
from penstock_jobs.rewards.history.git_repository import Repository
from penstock_jobs.rewards.history.session_commits import RepositoryReport
from penstock_jobs.rewards.runs import OutcomeGroup, RewardRunReport, RowGroup

if TYPE_CHECKING:  # a run of rewards needs no channels
    from penstock_jobs.rewards.rates import CheckpointRates

_STATES = ("scored", "pending", "censored", "invalid")
_OUTCOMES = ("scored", "negative_by_rule", "pending", "censored", "excluded")
#: A reward is counted by its smallest target; larger ones are made of those.
_SMALLEST_FIRST = ("edit", "turn", "request", "session")
_REASONS_MAX = 3
_REASON_CHARS_MAX = 80
Row = dict[str, Any]


def report_document(report: RewardRunReport) -> dict[str, Any]:
    def counts(items: Iterable[tuple[RowGroup | OutcomeGroup, int]]) -> list[Row]:
        ordered = sorted(items, key=lambda item: tuple(map(str, item[0])))
        return [{**kind._asdict(), "count": count} for kind, count in ordered]

    plain = ("definition", "version", "sessions", "changed", "matured", "live", "events")
    document: dict[str, Any] = {name: getattr(report, name) for name in plain}
    document |= {
        "as_of": time_of(report.as_of_us).isoformat(),
        "rewards": counts(report.rows.items()),
        "outcomes": counts(report.outcomes.items()),
    }
    return document


def repository_document(repository: Repository, report: RepositoryReport) -> Row:
    known_us = report.gaps.known_until_us
    return {
        "repository": str(repository.directory),
        "branch": repository.branch,
        "sessions": report.sessions,
        "commits": report.commits,
        "known_until": None if known_us is None else time_of(known_us).isoformat(),
        "unanswered": report.gaps.unanswered,
        "unreadable": report.gaps.unreadable,
        "problem": report.problem,
    }


def show_report(report: RewardRunReport) -> None:
    say(
        f"{report.definition} ({report.version}): {report.sessions} sessions,"
        f" {report.changed} changed and {report.matured} matured, {report.events} events"
    )
    if report.live:
        say(
            f"Sessions that are going on: {report.live}. A run computes each when it ends, or after"
            " 5 quiet minutes; `penstock rewards show SESSION` computes one now."
        )
    if report.rows:
        show_table(["reward", "of each", *_STATES, "why"], list(_reward_lines(report.rows)))
        say("")
        reasons: defaultdict[str, Counter[str | None]] = defaultdict(Counter)
        for (outcome, reason), count in report.outcomes.items():
            reasons[outcome][reason] += count
        ended = [(outcome, reasons[outcome]) for outcome in _OUTCOMES if outcome in reasons]
        lines = [[outcome, counts.total(), _reasons(counts)] for outcome, counts in ended]
        show_table(["outcome", "sessions", "why"], lines)


def show_repository(repository: Repository, report: RepositoryReport) -> None:
    if report.problem is not None:
        _say(f"The repository {repository.directory} was left out: {report.problem}.")
        return
    _say(
        f"The repository {repository.directory}: {report.commits} new commits for"
        f" {report.sessions} sessions."
    )
    gaps = report.gaps
    if gaps.unanswered and gaps.known_until_us is not None:
        known = f"{time_of(gaps.known_until_us):%Y-%m-%d %H:%M} UTC"
        _say(
            f"The clone {repository.directory} knows {repository.branch} up to {known}:"
            f" {gaps.unanswered} later horizons of edits were not answered."
            " Fetch, update the branch or name another with --branch, and run again."
        )
    if gaps.unreadable:
        _say(
            f"The clone {repository.directory} lacks {gaps.unreadable} objects, as a shallow or"
            " partial clone does: their files were not compared."
        )


def _reward_lines(rows: Mapping[RowGroup, int]) -> Iterable[list[object]]:
    for name in sorted({row.name for row in rows}, key=lambda name: (name == NAME, name)):
        kinds = {row.target_kind for row in rows if row.name == name}
        kind = next(candidate for candidate in _SMALLEST_FIRST if candidate in kinds)
        states: Counter[str] = Counter()
        reasons: Counter[str | None] = Counter()
        for row, count in rows.items():
            if (row.name, row.target_kind) == (name, kind):
                states[row.state] += count
                if row.state != "scored":
                    reasons[row.reason] += count
        yield [name, kind, *(states[state] or "" for state in _STATES), _reasons(reasons)]


def _reasons(counts: Counter[str | None]) -> str:
    known = [(reason, count) for reason, count in counts.most_common() if reason]
    shown = [(shorten(reason, _REASON_CHARS_MAX, placeholder=" …"), n) for reason, n in known]
    if more := sum(count for _, count in known[_REASONS_MAX:]):
        shown[_REASONS_MAX:] = [("others", more)]
    return ", ".join(f"{reason} {count}" for reason, count in shown)


def show_rates(checkpoints: Sequence["CheckpointRates"]) -> None:
    columns = ["checkpoint", "sessions", *(checkpoints[0].rates if checkpoints else ())]
    named = [(rates.checkpoint or "(several, or none)", rates) for rates in checkpoints]
    rows = [
        [name, rates.sessions, *(short(rate.value) for rate in rates.rates.values())]
        for name, rates in named
    ]
    show_table(columns, rows)
    say("")
    reasons = [
        [name, kind, reason or "", count]
        for name, rates in named
        for (kind, reason), count in sorted(rates.outcomes.items(), key=lambda item: -item[1])
    ]
    show_table(["checkpoint", "outcome", "why", "sessions"], reasons)
    means = [
        [name, mean.name + _at_horizon(mean.horizon_s), short(mean.value), mean.known, mean.unknown,
         f"{mean.low:.3f} to {mean.high:.3f}"]
        for name, rates in named
        for mean in rates.means
    ]  # fmt: skip
    if means:
        say("")
        columns = ["checkpoint", "reward", "mean", "sessions", "unknown", "whatever is unknown"]
        show_table(columns, means)
    judged = [(name, rates.dissatisfied) for name, rates in named if rates.dissatisfied]
    if judged:
        say("")
        columns = ["checkpoint", "dissatisfied", "from", "to", "as judged", "labels"]
        columns += ["requests drawn", "by", "asked twice", "later"]
        show_table(columns, [[name, *_corrected_cells(own)] for name, own in judged])


def _corrected_cells(dissatisfied: Dissatisfaction) -> list[object]:
    """Format a corrected rate. The judge's own rate is no estimate and has its own column."""
    rate, interval = dissatisfied.rate, dissatisfied.interval()
    value = short(rate.value) if interval else "unknown"
    ends = [short(end) for end in interval] if interval else ["", ""]
    facts = [short(rate.judged), dissatisfied.labels, rate.requests, dissatisfied.truth_by]
    facts.append(f"{rate.repeats.differing} of {rate.repeats.asked} differ")
    return [value, *ends, *facts, dissatisfied.later]


def _corrected_document(dissatisfied: Dissatisfaction) -> dict[str, object]:
    rate, interval = dissatisfied.rate, dissatisfied.interval()
    return {
        "value": rate.value if interval else None,
        "interval": interval,
        "judged": rate.judged,
        "belief": rate.belief,
        "labels": dissatisfied.labels,
        "requests_drawn": rate.requests,
        "asked_twice": rate.repeats.asked,
        "differing": rate.repeats.differing,
        "draw_rate": rate.rate,
        "truth_by": dissatisfied.truth_by,
        "sessions": len(dissatisfied.sessions),
        "sessions_later": dissatisfied.later,
    }


def rates_document(rates: "CheckpointRates") -> dict[str, object]:
    return {
        "checkpoint": rates.checkpoint,
        "sessions": rates.sessions,
        "outcomes": [
            {"outcome": kind, "reason": reason, "sessions": count}
            for (kind, reason), count in rates.outcomes.items()
        ],
        "rates": {
            name: {"value": rate.value, "hits": rate.hits, "of": rate.of}
            for name, rate in rates.rates.items()
        },
        "dissatisfied": rates.dissatisfied and _corrected_document(rates.dissatisfied),
        "means": [vars(mean) for mean in rates.means],
    }


def short(value: object) -> object:
    if isinstance(value, list):
        return " to ".join(f"{end:.3f}" for end in value)
    return f"{value:.3f}" if isinstance(value, float) else value


def show_explanation(explanation: Explanation) -> None:
    _say(explanation.sentence())
    if len(explanation.chain) > 1:
        _say("Its chain shares the reward:")
        rows = [[own.session_id, own.outcome, own.reason, short(own.value)]
                for own in explanation.chain]  # fmt: skip
        show_table(["session", "outcome", "why", "worth"], rows)
    if not explanation.terms:
        return
    _say("")
    rows = []
    for term in explanation.terms:
        at = _at_horizon(term.horizon_s)
        counted = None if term.counted is None else f"{term.counted:+.3f}"
        why = term.reason if term.state == "scored" else f"{term.state}: {term.reason}"
        rows.append([term.name + at, f"{term.weight:g}", short(term.value), counted, why])
    show_table(["term", "weight", "value", "adds", "why"], rows)
    if explanation.total is not None:
        clip = explanation.clip
        bounds = f", clipped to {clip[0]:g} … {clip[1]:g}" if clip else ""
        _say(f"Together they are {explanation.total:+.3f}{bounds}.")
    _say("")
    _show_requests(explanation)


def _show_requests(explanation: Explanation) -> None:
    rows = []
    for request in explanation.requests:
        ended = "" if request.ended_at is None else f"{request.ended_at:%H:%M:%S}"
        adds = [f"{term.name} {term.counted:+.2f}" for term in request.terms if term.counted]
        worth = request.state if request.value is None else f"{request.value:+.3f}"
        facts = [request.number, request.kind, f"{request.size:.2f}", ended]
        rows.append([*facts, short(request.verdict), ", ".join(adds), worth])
    if rows:
        show_table(["request", "kind", "size", "ended", "said", "terms", "worth"], rows)
        _say("")


def show_all_rewards(rows: Sequence[Row]) -> None:
    for kind in ("edit", "turn", "request"):
        for target in {row["target_id"]: None for row in rows if row["target_kind"] == kind}:
            _say(f"{kind} {target}")
            _show_rewards([row for row in rows if row["target_id"] == target], kind)
    _say("session")
    _show_rewards(rows, "session")


def _show_rewards(rows: Iterable[Row], kind: str) -> None:
    rows = [row for row in rows if row["target_kind"] == kind]
    horizons = sorted({row["horizon_s"] for row in rows if row["horizon_s"] is not None})
    columns = ["reward", *map(_duration, horizons), "without horizon"]
    table: dict[str, dict[int | None, object]] = {}
    for row in rows:
        why = f"{row['state']}: {row['reason']}" if row["reason"] else row["state"]
        value = why if row["value"] is None else short(row["value"])
        table.setdefault(row["name"], {})[row["horizon_s"]] = value
    places = [*horizons, None]
    lines = [[name, *(own.get(place, "") for place in places)] for name, own in table.items()]
    show_table(columns, lines)
    _say("")


def _at_horizon(horizon_s: int | None) -> str:
    return "" if horizon_s is None else f" at {_duration(horizon_s)}"


def _duration(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _say(text: str) -> None:
    """Print a line. Line breaks in ids and paths of producers are escaped."""
    show_text(visible_line(text))


def show_evaluation(name: str, evaluation: Evaluation) -> None:
    unjudged = ", ".join(f"{reason} {count}" for reason, count in evaluation.unjudged.items())
    _say(
        f"{evaluation.judge}, {name}: {evaluation.examples} messages,"
        f" accuracy {evaluation.accuracy:.0%}; dissatisfied: Brier score"
        f" {evaluation.brier:.3f}, calibration error"
        f" {evaluation.dissatisfied_calibration_error:.3f}"
        + (f"; without an answer: {unjudged}" if unjudged else "")
    )
    qualities = [("dissatisfied", evaluation.dissatisfied), *evaluation.labels.items()]
    shares = [
        [label, *(_with_interval(quality, name) for name in ("precision", "recall", "f1")),
         quality.support]
        for label, quality in qualities
    ]  # fmt: skip
    show_table(["label", "precision", "recall", "F1", "messages"], shares)
    _say("")
    bins = [
        [
            f"{row.low:.1f} to {row.high:.1f}",
            f"{row.predicted:.2f}",
            f"{row.observed:.2f}",
            row.count,
        ]
        for row in evaluation.dissatisfied_reliability
    ]
    show_table(["predicted dissatisfied", "mean", "observed", "messages"], bins)
    _say("")


def _with_interval(quality: Quality, name: str) -> str:
    value: float | None = getattr(quality, name)
    if value is None:
        return ""
    low, high = quality.intervals[name]
    return f"{value:.2f} ({low:.2f} to {high:.2f})"
