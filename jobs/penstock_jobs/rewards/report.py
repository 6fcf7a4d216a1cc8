"""What a run did, for a person: how much is scored, pending, censored, invalid, and why."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from textwrap import shorten
from typing import Any

import pyarrow as pa

from penstock.terminal.output import say, show_table, time_of
from penstock_jobs.rewards.bucket import Bucket, by_session
from penstock_jobs.rewards.credit import Place, rewards_of, score
from penstock_jobs.rewards.definition import NAME, Definition, Term
from penstock_jobs.rewards.followups.evaluation import Bin, Evaluation, Quality
from penstock_jobs.rewards.reward import all_rewards
from penstock_jobs.rewards.runs import Count, Ending, Report
from penstock_jobs.rewards.texts.trail import named

_STATES = ("scored", "pending", "censored", "invalid")
_OUTCOMES = ("scored", "negative_by_rule", "pending", "censored", "excluded")
#: A reward is counted by the smallest thing that it is about; the rest is made of those.
_SMALLEST_FIRST = ("edit", "turn", "session")
_REASONS_MAX = 3
_REASON_CHARS_MAX = 80


def report_facts(report: Report) -> dict[str, Any]:
    """For programs: every count."""
    return {
        "definition": report.definition,
        "version": report.version,
        "as_of": time_of(report.as_of_us).isoformat(),
        "sessions": report.sessions,
        "changed": report.changed,
        "matured": report.matured,
        "events": report.events,
        "rewards": _facts(report.rows.items()),
        "outcomes": _facts(report.endings.items()),
    }


def _facts(counts: Iterable[tuple[Count | Ending, int]]) -> list[dict[str, Any]]:
    ordered = sorted(counts, key=lambda item: tuple(map(str, item[0])))
    return [{**key._asdict(), "count": count} for key, count in ordered]


def show_report(report: Report) -> None:
    say(
        f"{report.definition} ({report.version}): {report.sessions} sessions,"
        f" {report.changed} changed and {report.matured} matured, {report.events} events"
    )
    if report.rows:
        show_table(["reward", "of each", *_STATES, "why"], list(_reward_lines(report.rows)))
        say("")
        show_table(["outcome", "sessions", "why"], list(_outcome_lines(report.endings)))


def _reward_lines(rows: Mapping[Count, int]) -> Iterable[list[object]]:
    for name in sorted({row.name for row in rows}, key=lambda name: (name == NAME, name)):
        kinds = {row.target_kind for row in rows if row.name == name}
        kind = "session" if name == NAME else next(one for one in _SMALLEST_FIRST if one in kinds)
        chosen = {
            row: count for row, count in rows.items() if (row.name, row.target_kind) == (name, kind)
        }
        states: Counter[str] = Counter()
        why: Counter[str | None] = Counter()
        for row, count in chosen.items():
            states[row.state] += count
            if row.state != "scored":
                why[row.reason] += count
        yield [name, kind, *(states[one] or "" for one in _STATES), _reasons(why)]


def _outcome_lines(endings: Mapping[Ending, int]) -> Iterable[list[object]]:
    whys: defaultdict[str, Counter[str | None]] = defaultdict(Counter)
    for ending, count in endings.items():
        whys[ending.outcome][ending.reason] += count
    for outcome in _OUTCOMES:
        if outcome in whys:
            yield [outcome, whys[outcome].total(), _reasons(whys[outcome])]


def _reasons(why: Counter[str | None]) -> str:
    found = [(reason, count) for reason, count in why.most_common() if reason]
    shown = [
        f"{shorten(reason, _REASON_CHARS_MAX, placeholder=' …')} {count}"
        for reason, count in found[:_REASONS_MAX]
    ]
    if (more := sum(count for _, count in found[_REASONS_MAX:])) > 0:
        shown.append(f"others {more}")
    return ", ".join(shown)


_DIFF_LINES_MAX = 12
_LINE_CHARS_MAX = 100
Row = dict[str, Any]


def compute(
    bucket: Bucket, definition: Definition | None, places: Mapping[str, Place] | None = None
) -> pa.Table:
    """All rewards that need nothing, with their defaults; by a definition its own, and what it
    makes of them. Raises InvalidInput, JudgeUnfit."""
    if definition is None:
        free = [reward for reward in all_rewards().values() if reward.check is None]
        return rewards_of(bucket, [Term(reward, reward.parameters()) for reward in free])
    return score(bucket, definition, places=places).rewards


def show_session(session: str, bucket: Bucket, rows: Sequence[Row]) -> None:
    edits = by_session(bucket.edits, "edit_id", "event_id", "path", "before", "after")
    texts = dict(named(edits.get(session, ())))
    for edit in _targets(rows, "edit"):
        if edit in texts:
            _show_text(edit, texts[edit])
        _show_rewards([row for row in rows if row["target_id"] == edit], "edit")
    for turn in _targets(rows, "turn"):
        _say(f"turn {turn}")
        _show_rewards([row for row in rows if row["target_id"] == turn], "turn")
    _say("session")
    _show_rewards(rows, "session")


def _show_text(edit: str, row: Row) -> None:
    _say(f"edit {edit}: {row['path']}")
    before, after = row["before"] or "", row["after"] or ""
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    for line in lines[:_DIFF_LINES_MAX]:
        _say("  " + line[:_LINE_CHARS_MAX])
    if len(lines) > _DIFF_LINES_MAX:
        _say(f"  … {len(lines) - _DIFF_LINES_MAX} lines more")


def _show_rewards(rows: Iterable[Row], kind: str) -> None:
    """A line a reward, a column a horizon."""
    rows = [row for row in rows if row["target_kind"] == kind]
    horizons = sorted({row["horizon_s"] for row in rows if row["horizon_s"] is not None})
    columns = ["reward", *(_duration(one) for one in horizons), "without horizon"]
    table: dict[str, dict[int | None, str]] = {}
    for row in rows:
        table.setdefault(row["name"], {})[row["horizon_s"]] = _said(row)
    lines = [[name, *(by.get(one, "") for one in (*horizons, None))] for name, by in table.items()]
    show_table(columns, lines)
    _say("")


def _said(row: Row) -> str:
    if row["value"] is not None:
        return f"{row['value']:.3f}"
    return f"{row['state']}: {row['reason']}" if row["reason"] else str(row["state"])


def _duration(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _targets(rows: Iterable[Row], kind: str) -> Iterator[str]:
    yield from dict.fromkeys(row["target_id"] for row in rows if row["target_kind"] == kind)


def _say(text: str) -> None:
    """A line. What a producer sent as an id or a path may hold what moves a terminal's cursor."""
    sys.stdout.write("".join(one if one.isprintable() else " " for one in text) + "\n")


def show_evaluation(name: str, found: Evaluation) -> None:
    _say(
        f"{name}: {found.examples} examples, {found.accuracy:.0%} of the labels found; "
        f"calibration error of dissatisfied {found.dissatisfied_calibration_error:.2f}"
    )
    qualities: list[tuple[str, Quality]] = [("dissatisfied", found.dissatisfied)]
    qualities += found.labels.items()
    show_table(
        ["label", "precision", "recall", "F1", "examples"],
        [
            [label, *map(_share, (one.precision, one.recall, one.f1)), one.support]
            for label, one in qualities
        ],
    )
    _say("")
    columns = ["dissatisfied, as the judge sees it", "on average", "it was", "examples"]
    show_table(columns, [_bin(one) for one in found.dissatisfied_reliability if one.count])
    _say("")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _bin(one: Bin) -> list[object]:
    span = f"{one.low:.1f} to {one.high:.1f}"
    return [span, _share(one.predicted), _share(one.observed), one.count]
