"""A session's rewards for a person: each edit's text, and beside it what became of it."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any

import pyarrow as pa

from penstock.terminal.output import show_table
from penstock_jobs.rewards.credit import Place
from penstock_jobs.rewards.definition import Definition, Term
from penstock_jobs.rewards.followups.evaluation import Bin, Evaluation, Quality
from penstock_jobs.rewards.registry import all_rewards
from penstock_jobs.rewards.rows import Bucket, by_session
from penstock_jobs.rewards.scoring import rewards_of, score
from penstock_jobs.rewards.texts.ordering import named

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
