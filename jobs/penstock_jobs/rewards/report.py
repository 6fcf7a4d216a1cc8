"""The results of runs, sessions, checkpoints and judges, as a person reads them in a terminal."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from textwrap import shorten
from typing import Any

import pyarrow as pa

from penstock.terminal.output import say, show_table, show_text, time_of
from penstock.visible_text import visible_line
from penstock_jobs.rewards.bucket import Bucket, by_session
from penstock_jobs.rewards.credit import rewards_of, score_bucket
from penstock_jobs.rewards.definition import NAME, Definition, Term
from penstock_jobs.rewards.followups.judge import Evaluation
from penstock_jobs.rewards.git_history import HistoryGaps
from penstock_jobs.rewards.git_repository import Repository
from penstock_jobs.rewards.lives import ChainMember
from penstock_jobs.rewards.rates import CheckpointRates
from penstock_jobs.rewards.reward import all_rewards
from penstock_jobs.rewards.runs import OutcomeKind, RewardRunReport, RowKind
from penstock_jobs.rewards.texts.trail import named

_STATES = ("scored", "pending", "censored", "invalid")
_OUTCOMES = ("scored", "negative_by_rule", "pending", "censored", "excluded")
#: A reward is counted by the smallest thing that it is about; the rest is made of those.
_SMALLEST_FIRST = ("edit", "turn", "session")
_REASONS_MAX = 3
_REASON_CHARS_MAX = 80
_DIFF_LINES_MAX = 12
_LINE_CHARS_MAX = 100
Row = dict[str, Any]


def report_document(report: RewardRunReport) -> dict[str, Any]:
    def counts(items: Iterable[tuple[RowKind | OutcomeKind, int]]) -> list[Row]:
        ordered = sorted(items, key=lambda item: tuple(map(str, item[0])))
        return [{**kind._asdict(), "count": count} for kind, count in ordered]

    document: dict[str, Any] = {
        "definition": report.definition,
        "version": report.version,
        "as_of": time_of(report.as_of_us).isoformat(),
        "sessions": report.sessions,
        "changed": report.changed,
        "matured": report.matured,
        "events": report.events,
        "rewards": counts(report.rows.items()),
        "outcomes": counts(report.outcomes.items()),
    }
    if (gaps := report.gaps) is not None:
        known_us = gaps.known_until_us
        document["git"] = {
            "known_until": None if known_us is None else time_of(known_us).isoformat(),
            "unanswered": gaps.unanswered,
            "unreadable": gaps.unreadable,
        }
    return document


def show_report(report: RewardRunReport) -> None:
    say(
        f"{report.definition} ({report.version}): {report.sessions} sessions,"
        f" {report.changed} changed and {report.matured} matured, {report.events} events"
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


def show_gaps(repository: Repository, gaps: HistoryGaps) -> None:
    """What the repository could not say, and what to do about it."""
    if gaps.unanswered and gaps.known_until_us is not None:
        known = f"{time_of(gaps.known_until_us):%Y-%m-%d %H:%M} UTC"
        _say(
            f"The clone {repository.directory} knows {repository.branch} up to {known}:"
            f" {gaps.unanswered} looks at files after that were not answered."
            " Fetch, bring the branch up to it or name another with --branch, and run again."
        )
    if gaps.unreadable:
        _say(
            f"The clone {repository.directory} lacks {gaps.unreadable} objects of commits, as a"
            " shallow or partial clone does: their files say nothing."
        )


def _reward_lines(rows: Mapping[RowKind, int]) -> Iterable[list[object]]:
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


def show_rates(checkpoints: Sequence[CheckpointRates]) -> None:
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


def rates_document(rates: CheckpointRates) -> dict[str, object]:
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
    }


def short(value: object) -> object:
    return f"{value:.3f}" if isinstance(value, float) else value


def compute(
    bucket: Bucket, definition: Definition | None, places: Mapping[str, ChainMember] | None = None
) -> pa.Table:
    """The rewards of a definition and its sum; without a definition all rewards that need no
    settings, with their defaults. Raises InvalidInput, JudgeUnfit."""
    if definition is None:
        free = [reward for reward in all_rewards().values() if reward.check is None]
        return rewards_of(bucket, [Term(reward, reward.parameters()) for reward in free])
    return score_bucket(bucket, definition, places=places).rewards


def show_session(session: str, bucket: Bucket, rows: Sequence[Row]) -> None:
    edits = by_session(bucket.edits, "edit_id", "event_id", "path", "before", "after")
    texts = dict(named(edits.get(session, ())))
    for edit in _targets(rows, "edit"):
        if edit in texts:
            row = texts[edit]
            _say(f"edit {edit}: {row['path']}")
            before, after = (row["before"] or "").splitlines(), (row["after"] or "").splitlines()
            lines = list(unified_diff(before, after, lineterm="", n=1))[2:]
            for line in lines[:_DIFF_LINES_MAX]:
                _say("  " + line[:_LINE_CHARS_MAX])
            if len(lines) > _DIFF_LINES_MAX:
                _say(f"  … {len(lines) - _DIFF_LINES_MAX} lines more")
        _show_rewards([row for row in rows if row["target_id"] == edit], "edit")
    for turn in _targets(rows, "turn"):
        _say(f"turn {turn}")
        _show_rewards([row for row in rows if row["target_id"] == turn], "turn")
    _say("session")
    _show_rewards(rows, "session")


def _targets(rows: Iterable[Row], kind: str) -> list[str]:
    return list(dict.fromkeys(row["target_id"] for row in rows if row["target_kind"] == kind))


def _show_rewards(rows: Iterable[Row], kind: str) -> None:
    """There is a line for each reward and a column for each horizon."""
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


def _duration(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _say(text: str) -> None:
    """Ids and paths are as producers sent them: a line break in one begins no line."""
    show_text(visible_line(text))


def show_evaluation(name: str, evaluation: Evaluation) -> None:
    _say(
        f"{name}: {evaluation.examples} examples, {evaluation.accuracy:.0%} of the labels found; "
        f"calibration error of dissatisfied {evaluation.dissatisfied_calibration_error:.2f}"
    )
    qualities = [("dissatisfied", evaluation.dissatisfied), *evaluation.labels.items()]
    shares = [
        [label, *map(_share, (quality.precision, quality.recall, quality.f1)), quality.support]
        for label, quality in qualities
    ]
    show_table(["label", "precision", "recall", "F1", "examples"], shares)
    _say("")
    bins = [
        [f"{row.low:.1f} to {row.high:.1f}", _share(row.predicted), _share(row.observed), row.count]
        for row in evaluation.dissatisfied_reliability
    ]
    show_table(["dissatisfied, as the judge sees it", "on average", "it was", "examples"], bins)
    _say("")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
