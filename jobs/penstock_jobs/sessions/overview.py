"""The first page of the console: traffic, rewards, serving checkpoints, and what needs a person."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from markupsafe import Markup

from penstock.core.clock import SECOND_US
from penstock.core.endpoint import A, Endpoint, ListRequest, R, Request
from penstock.doors.console.charts import (
    WIDTH,
    Bar,
    Interval,
    Series,
    bar_chart,
    interval_chart,
    line_chart,
    share_bar,
)
from penstock.doors.console.figures import as_time, duration, signed
from penstock.doors.console.page import Content, PageList, Visitor, all_pages, page_sql
from penstock.ingest.endpoints import READ_LEDGER, LedgerAnswer, LedgerRequest
from penstock.lake.endpoints import seconds_until_stored
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.endpoints import LIST_CHANNELS
from penstock.registry.channels.history import channel_changes
from penstock_jobs.loop.endpoints import SHOW_LOOPS, CycleAnswer, LoopsRequest
from penstock_jobs.rewards.pages import chosen_rewards, state_bars
from penstock_jobs.rewards.rates import BoundedMean

PAGES = PageList("penstock_jobs.sessions:pages/")

#: Events that wait longer are stuck.
WAITING_SECONDS_MAX = 60.0
#: If more sessions have no value, rewards rest on too few.
SILENT_SHARE_MAX = 0.5
#: Shares of fewer sessions say little.
_SESSIONS_MIN = 20
#: If more lines are rejected, a producer is broken.
_REJECTED_SHARE_MAX = 0.01
Tone = Literal["bad", "warn"]


class Notice(msgspec.Struct, frozen=True):
    tone: Tone
    sentence: str
    href: str
    link: str


class Facts(msgspec.Struct, frozen=True):
    now_s: float
    ledger: LedgerAnswer | None = None
    waiting_since_s: float | None = None
    channels: Sequence[ChannelState] = ()
    cycles: Sequence[CycleAnswer] = ()
    #: Sessions by outcome; an empty name for those without rewards.
    outcomes: Mapping[str, int] = msgspec.field(default_factory=dict)
    sessions: int = 0


def notices_of(facts: Facts) -> list[Notice]:
    found = [*_of_ledger(facts), *_of_channels(facts), *_of_cycles(facts), *_of_rewards(facts)]
    return sorted(found, key=lambda notice: notice.tone != "bad")


def _of_ledger(facts: Facts) -> Iterator[Notice]:
    ledger = facts.ledger
    if ledger is None:
        return
    for sentence in ledger.discrepancies[:3]:
        yield Notice("bad", f"The ledger does not add up: {sentence}", "/health", "Health")
    gaps = [gap for gap in ledger.gaps if gap.accepted_at is None]
    if gaps:
        lost = sum(gap.to_offset - gap.from_offset for gap in gaps)
        sentence = f"{lost} offsets of the event log were lost before they were stored."
        yield Notice("bad", sentence, "/health", "Health")
    waited_s = 0.0 if facts.waiting_since_s is None else facts.now_s - facts.waiting_since_s
    if ledger.waiting is not None and waited_s > WAITING_SECONDS_MAX:
        count, minutes = ledger.waiting.events, waited_s / 60
        sentence = f"{count} events have waited {minutes:.0f} min to be stored."
        yield Notice("bad", f"{sentence} {ledger.waiting.why}".strip(), "/health", "Health")
    totals = ledger.totals
    came = totals.accepted + totals.rejected
    if totals.rejected > came * _REJECTED_SHARE_MAX:
        sentence = f"{totals.rejected} of {came} lines were rejected."
        yield Notice("warn", sentence, "/health", "Rejected lines")
    if totals.dropped:
        sentence = f"Recorders dropped {totals.dropped} events before sending them."
        yield Notice("warn", sentence, "/health", "Health")


def _of_channels(facts: Facts) -> Iterator[Notice]:
    for channel in facts.channels:
        if channel.pinned:
            sentence = (
                f"{channel.channel} is pinned to {channel.checkpoint}: nothing is promoted until a "
                "person releases it."
            )
            yield Notice("warn", sentence, "/checkpoints", "Checkpoints")


def _of_cycles(facts: Facts) -> Iterator[Notice]:
    for cycle in facts.cycles:
        name = f"Cycle {cycle.cycle} of {cycle.loop}"
        if cycle.outcome == "failed":
            yield Notice("bad", f"{name} failed: {cycle.why}", "#loops", "The loop")
        elif cycle.outcome is None and any(stage.silent for stage in cycle.stages):
            stages = ", ".join(stage.stage for stage in cycle.stages if stage.silent)
            sentence = f"{name} is stuck: no sign of {stages} for too long."
            yield Notice("bad", sentence, "#loops", "The loop")
        elif cycle.outcome is None and cycle.over_budget:
            over_min = ((cycle.took_s or 0) - cycle.budget_s) / 60
            yield Notice(
                "warn", f"{name} is {over_min:.0f} min over its budget.", "#loops", "The loop"
            )


def _of_rewards(facts: Facts) -> Iterator[Notice]:
    known = sum(facts.outcomes.values())
    if facts.sessions and not known:
        sentence = "Rewards were never computed: penstock rewards run."
        yield Notice("warn", sentence, "/rewards", "Rewards")
    ended = known - facts.outcomes.get("pending", 0)
    if ended < _SESSIONS_MIN:
        return
    for kind, why in (
        ("censored", "nobody observed what became of their edits"),
        ("excluded", "a rule excludes them"),
        ("negative_by_rule", "a rule makes them negative"),
    ):
        count = facts.outcomes.get(kind, 0)
        if count > SILENT_SHARE_MAX * ended:
            word = kind.replace("_", " ")
            sentence = f"{count} of {ended} sessions are {word}: {why}."
            yield Notice("warn", sentence, f"/sessions?outcome={kind}", "These sessions")


_HOUR_S = 3600
Window = Literal["6h", "24h", "7d", "30d"]
_WINDOWS: dict[Window, tuple[int, int]] = {
    "6h": (6 * _HOUR_S, 300),
    "24h": (24 * _HOUR_S, 900),
    "7d": (7 * 24 * _HOUR_S, 2 * _HOUR_S),
    "30d": (30 * 24 * _HOUR_S, 8 * _HOUR_S),
}
_STATES_MAX, _CHANGES_MAX = 10, 5
_KINDS = ("checkpoint", "day")
_MEASURES = {
    "worth": "Worth",
    "kept": "Code kept after 10 min",
    "dissatisfied": "Users who came back dissatisfied",
}
_TONES = {
    "scored": "good", "negative_by_rule": "bad", "censored": "warn", "excluded": "s5",
    "pending": "info",
}  # fmt: skip


class OverviewRequest(Request):
    window: Window = "24h"


def _live(visitor: Visitor, asked: OverviewRequest, figures: Content) -> Content:
    """Read what people and loops change, and the ledger."""
    now_us, since_us = visitor.clock.now_us(), figures["since_us"]
    hour_us = _HOUR_S * SECOND_US
    ledger = _asked(visitor, READ_LEDGER, LedgerRequest(since=since_us // hour_us * hour_us))
    known = _asked(visitor, LIST_CHANNELS, ListRequest(limit=20))
    channels = known.channels if known else []
    loops = _asked(visitor, SHOW_LOOPS, LoopsRequest(limit=20))
    cycles = loops.cycles if loops else []
    place = visitor.lake.database, visitor.grant.tenant
    newest = partial(channel_changes, *place, limit=20, latest=True)
    changes = [change for each in channels for change in newest(each.channel)]
    changes.sort(key=lambda change: change.at, reverse=True)
    ended = {row["outcome"]: row["sessions"] for row in figures["outcomes"]}
    now_s, since_s = now_us / SECOND_US, _waiting_since_s(ledger)
    facts = Facts(now_s, ledger, since_s, channels, cycles, ended, figures["sessions"])
    return {
        "notices": list(map(_with_page, notices_of(facts))),
        "events_chart": _events_chart(ledger, since_us, now_us) if ledger is not None else "",
        "ledger": ledger,
        "waiting_s": None if since_s is None else max(now_s - since_s, 0.0),
        "until_stored": _until_stored(visitor, since_us) if ledger is not None else {},
        "channels": channels,
        "changes": [own for own in changes if own.action != "policy"][:_CHANGES_MAX],
        "sees_channels": known is not None,
        "cycles": [(cycle, _stages_chart(cycle)) for cycle in cycles],
    }


@PAGES.page(
    "/", "Overview", "overview.html.jinja", reads_rows=True, remembered=True, live=_live,
    group="Production", place=0, shortcut="o",
)  # fmt: skip
def _overview(visitor: Visitor, asked: OverviewRequest) -> Content:
    window_s, step_s = _WINDOWS[asked.window]
    now_us = visitor.clock.now_us()
    since_us = now_us - window_s * SECOND_US
    variables = {"since_us": str(since_us), "step_s": str(step_s)}
    steps = _rows(visitor, "sessions_by_time.sql", {"sessions"}, variables)
    outcomes = _rows(visitor, "outcomes.sql", {"outcomes", "sessions"}, variables)
    states, measures = _rewards(visitor, outcomes, since_us)
    sessions = sum(row["sessions"] for row in steps)
    shares = [
        Bar(row["outcome"].replace("_", " "), row["sessions"], _TONES.get(row["outcome"], "s5"))
        for row in outcomes
    ]
    return {
        "windows": list(_WINDOWS),
        "since_us": since_us,
        "sessions": sessions,
        "sessions_chart": _sessions_chart(steps, since_us, now_us, step_s),
        "outcomes": outcomes,
        "outcomes_chart": share_bar(shares, title="Outcomes of sessions"),
        "worth": _worth(outcomes),
        "computed_at": max((row["computed_at"] for row in outcomes), default=None),
        "states": states,
        "without_outcome": sessions - sum(row["sessions"] for row in outcomes),
        "measures": measures,
    }


def _worth(outcomes: Sequence[dict[str, Any]]) -> BoundedMean | None:
    """Return the mean worth of sessions, and its bounds if what nobody saw counts too."""
    known = [(row["sessions"], row["worth"]) for row in outcomes if row["worth"] is not None]
    unknown = sum(row["sessions"] for row in outcomes if row["outcome"] == "censored")
    count, total = sum(n for n, _ in known), sum(n * worth for n, worth in known)
    return BoundedMean.of("reward", None, count, total, unknown) if count else None


def _asked(visitor: Visitor, endpoint: Endpoint[R, A], request: R) -> A | None:
    return visitor.call(endpoint, request) if visitor.may_call(endpoint) else None


def _rows(
    visitor: Visitor, file: str, views: set[str], variables: dict[str, str]
) -> list[dict[str, Any]]:
    return visitor.own_rows(page_sql("penstock_jobs.sessions", file), frozenset(views), variables)


def _rewards(
    visitor: Visitor, outcomes: Sequence[dict[str, Any]], since_us: int
) -> tuple[list[tuple[str, dict[str, int], Markup]], dict[str, list[Markup]]]:
    """Bars of the states of rewards, and charts of what matters most by checkpoint and day."""
    if not outcomes:
        return [], {}
    newest = max(outcomes, key=lambda row: row["computed_at"])
    variables = {"version": newest["version"], "since_us": str(since_us)}
    variables |= {"checkpoint": "", "project": ""}
    statements = ("reward_states.sql", "measure_groups.sql")
    states, groups = visitor.own_answers(chosen_rewards(variables, *statements))
    return state_bars(states)[:_STATES_MAX], {
        title: [_measure_chart(title, measure, kind, groups) for kind in _KINDS]
        for measure, title in _MEASURES.items()
    }


def _with_page(notice: Notice) -> tuple[Notice, bool]:
    path = notice.href.partition("?")[0]
    return notice, path.startswith("#") or any(page.path == path for page in all_pages())


def _waiting_since_s(ledger: LedgerAnswer | None) -> float | None:
    if ledger is None or ledger.waiting is None or not ledger.waiting.since_at:
        return None
    return as_time(ledger.waiting.since_at).timestamp()


def _until_stored(visitor: Visitor, since_us: int) -> dict[str, float | None]:
    waits = seconds_until_stored(visitor.lake, since_us)
    return {
        name: waits[min(int(share * len(waits)), len(waits) - 1)] if waits else None
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


# Charts


def _measure_chart(title: str, measure: str, kind: str, groups: Sequence[dict[str, Any]]) -> Markup:
    """Means with 95 % intervals. A mean of one session has none."""
    marks = []
    for row in groups:
        if (row["measure"], row["kind"]) == (measure, kind):
            mean, half, note = row["mean"], row["half"], f"{row['sessions']} sessions"
            low, high = (None, None) if half is None else (mean - half, mean + half)
            marks.append(Interval(row["label"], low, mean, high, note=note))
    about = "Means of sessions with 95 % intervals."
    return interval_chart(
        marks,
        title=f"{title} by {kind}",
        description=about,
        value_format=signed,
        width=WIDTH,
        means=True,
    )


def _sessions_chart(
    steps: Sequence[dict[str, Any]], since_us: int, now_us: int, step_s: int
) -> object:
    if not steps:
        return line_chart([], title="Sessions per minute")
    counts = {round(row["step"].timestamp()): row["sessions"] for row in steps}
    first = since_us // SECOND_US // step_s * step_s + step_s
    times = range(first, now_us // SECOND_US + 1, step_s)
    points = [(float(at), 60 * counts.get(at, 0) / step_s) for at in times]
    title = "Sessions per minute"
    about = f"{sum(counts.values())} sessions, in steps of {duration(step_s)}."
    return line_chart([Series("", points)], title=title, description=about, area=True)


def _events_chart(ledger: LedgerAnswer, since_us: int, now_us: int) -> object:
    accepted: Counter[float] = Counter()
    rejected: Counter[float] = Counter()
    for row in ledger.rows:
        at = as_time(row.hour).timestamp()
        accepted[at] += row.accepted
        rejected[at] += row.rejected
    if not accepted:
        return line_chart([], title="Events per minute")
    first_s = since_us // SECOND_US // _HOUR_S * _HOUR_S
    times = range(first_s, now_us // SECOND_US + 1, _HOUR_S)
    series = [
        Series(name, [(float(at), counts[at] / 60) for at in times])
        for name, counts in (("accepted", accepted), ("rejected", rejected))
    ]
    about = f"{sum(accepted.values())} accepted, {sum(rejected.values())} rejected, by hour."
    return line_chart(series, title="Events per minute", description=about, area=True)


def _stages_chart(cycle: CycleAnswer) -> object:
    took: defaultdict[str, float] = defaultdict(float)
    tones = {"failed": "bad", "running": "info", "waiting": "warn"}
    states = {}
    for stage in cycle.stages:
        took[stage.stage] += stage.took_s or 0.0
        states[stage.stage] = stage.state
    bars = [Bar(name, seconds, tones.get(states[name], "")) for name, seconds in took.items()]
    title = f"Stages of cycle {cycle.cycle} of {cycle.loop}"
    return bar_chart(bars, title=title, value_format=lambda value: duration(value or 0.0))
