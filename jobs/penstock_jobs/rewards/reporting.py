"""What a run did, for a person: how much is scored, pending, censored, invalid, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

from penstock.terminal.output import say, show_table, time_of
from penstock_jobs.rewards.combine import NAME
from penstock_jobs.rewards.running import Report
from penstock_jobs.rewards.worker import Count, Ending

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
