"""Counts of the lines that agents wrote: how many stand at each horizon, with bounds.

What nobody can know counts as gone in the lower bound and as standing in the upper one. Lines that
the agent itself replaced are neither, and lines that are too young wait."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import add
from typing import Any, TypeVar

import msgspec

FIRST_S, DAY_S, WEEK_S, MONTH_S = 14_400, 86_400, 604_800, 2_592_000
HORIZONS: Mapping[int, str] = {
    FIRST_S: "four hours", DAY_S: "a day", WEEK_S: "a week", MONTH_S: "a month",
}  # fmt: skip
#: Where lines were seen: in sessions of the lake, or in records that tools left in a repository.
SESSIONS = "sessions of this lake"
KINDS = ("source", "tool", "model", "project", "language", "person")
_GROUPS_MAX = 20
_NO_LINES = ("nothing_written", "self_rework")
_SUFFIXES = """C c h;C# cs;C++ cc cpp hpp;CSS css scss;Go go;HTML html;Java java;JavaScript js jsx;
JSON json;Kotlin kt;Markdown md;PHP php;Python py;Ruby rb;Rust rs;Shell bash sh;SQL sql;Swift swift;
TOML toml;TypeScript ts tsx;YAML yaml yml"""
_LANGUAGES = {
    suffix: name for name, *suffixes in map(str.split, _SUFFIXES.split(";")) for suffix in suffixes
}

RowT = TypeVar("RowT", bound=msgspec.Struct)


class Tally(msgspec.Struct):
    """Lines of some edits at a horizon, by what is known of them."""

    kind: str
    label: str | None
    horizon_s: int
    edits: int = 0
    known: float = 0.0
    standing: float = 0.0
    unknown: float = 0.0
    pending: float = 0.0


class LineShare(msgspec.Struct):
    """The share of lines that stand at a horizon, from `low` to `high`; None if none is so old."""

    horizon_s: int
    lines: int
    unknown: int
    pending: int
    low: float | None
    high: float | None


class LineGroup(msgspec.Struct):
    label: str | None
    edits: int
    lines: int
    shares: list[LineShare]


class ThrownEdit(msgspec.Struct):
    """An edit without a standing line after the first hours."""

    session_id: str
    edit: str
    ts: datetime | None
    path: str | None
    tool: str | None
    model: str | None
    lines: float
    #: The agent itself replaced all of it.
    by_agent: bool
    #: The edit's part of what the model read and wrote for it.
    prompt_tokens: float | None
    completion_tokens: float | None


class ThrownAway(msgspec.Struct):
    """The longest edits that were thrown away, and the sums of all such edits."""

    edits: int = 0
    lines: int = 0
    completion_tokens: int = 0
    longest: list[ThrownEdit] = []


class Agreement(msgspec.Struct):
    """Lines that sessions and a tool's records both could claim."""

    source: str
    both: int = 0
    only_records: int = 0
    only_sessions: int = 0


class Counts(msgspec.Struct):
    """The parts of an answer, which come from the lake and from repositories."""

    since: str
    computed_at: datetime | None = None
    tallies: list[Tally] = []
    thrown_away: ThrownAway = msgspec.field(default_factory=ThrownAway)
    #: Lines that are unknown after a week, by reason.
    unknown: dict[str, int] = {}
    agreements: list[Agreement] = []


class SurvivalAnswer(msgspec.Struct):
    """Shares of agents' lines that stand, and `sentence`, which says it in words."""

    sentence: str
    since: str
    computed_at: datetime | None
    all: LineGroup
    by: dict[str, list[LineGroup]]
    thrown_away: ThrownAway
    #: Lines that are unknown after a week, by reason.
    unknown: dict[str, int]
    agreements: list[Agreement]


def answer_of(counts: Counts) -> SurvivalAnswer:
    groups: defaultdict[str, list[LineGroup]] = defaultdict(list)
    of_label: defaultdict[tuple[str, str | None], list[Tally]] = defaultdict(list)
    for tally in _added(map(_named, counts.tallies), 3):
        of_label[tally.kind, tally.label].append(tally)
    for (kind, label), own in of_label.items():
        groups[kind].append(_group(label, own))
    for own_groups in groups.values():
        own_groups.sort(key=lambda group: (-group.lines, group.label or ""))
        del own_groups[_GROUPS_MAX:]
    whole = groups["all"][0] if groups["all"] else _group(None, [])
    return SurvivalAnswer(
        _sentence(whole, counts.since),
        counts.since,
        counts.computed_at,
        whole,
        {kind: groups[kind] for kind in KINDS if any(group.label for group in groups[kind])},
        counts.thrown_away,
        counts.unknown,
        _added(counts.agreements, 1),
    )


def _named(tally: Tally) -> Tally:
    label = tally.label or None
    if tally.kind == "language" and label:
        label = _LANGUAGES.get(label, f".{label}")
    return msgspec.structs.replace(tally, label=label)


def _added(rows: Iterable[RowT], keys: int) -> list[RowT]:
    """Add up rows that are equal in their first fields."""
    sums: dict[tuple[Any, ...], RowT] = {}
    for row in rows:
        facts = msgspec.structs.astuple(row)
        if (key := facts[:keys]) in sums:
            known = msgspec.structs.astuple(sums[key])
            facts = (*key, *map(add, known[keys:], facts[keys:]))
        sums[key] = type(row)(*facts)
    return list(sums.values())


def _group(label: str | None, tallies: Sequence[Tally]) -> LineGroup:
    at = {tally.horizon_s: tally for tally in tallies}
    written = at.get(0, Tally("", None, 0))
    lines = round(written.known + written.unknown + written.pending)
    shares = [_share(at.get(horizon_s, Tally("", None, horizon_s))) for horizon_s in HORIZONS]
    return LineGroup(label, written.edits, lines, shares)


def _share(tally: Tally) -> LineShare:
    lines = tally.known + tally.unknown
    facts = (tally.horizon_s, round(lines), round(tally.unknown), round(tally.pending))
    if not lines:
        return LineShare(*facts, None, None)
    standing = min(tally.standing, tally.known)
    return LineShare(*facts, standing / lines, (standing + tally.unknown) / lines)


def _sentence(whole: LineGroup, since: str) -> str:
    if not whole.lines:
        return "No session of an agent that edited files is here."
    age = f"in the last {since[:-1]} days" if since.endswith("d") else f"since {since}"
    # The longest horizon up to a week at which half of the lines are known.
    told = [share for share in whole.shares[2::-1] if share.low is not None]
    if not told:
        return f"Agents wrote {whole.lines:,} lines {age}, and none is old enough to say more."
    if all(share.unknown == share.lines for share in told):
        return (
            f"Agents wrote {whole.lines:,} lines {age}. No clone of their repositories that was"
            " read says what stands: name one."
        )
    share = next((share for share in told if 2 * share.unknown <= share.lines), told[0])
    old = "" if not share.pending else f" and that are {HORIZONS[share.horizon_s]} old"
    return (
        f"Of {share.lines:,} lines that agents wrote {age}{old},"
        f" {percent(share.low, share.high)} stood after {HORIZONS[share.horizon_s]}."
    )


def percent(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "–"
    if (low, high) == (0.0, 1.0):
        return "unknown"
    ends = f"{100 * low:.0f}", f"{100 * high:.0f}"
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"


def tallies_of(
    rows: Iterable[Mapping[str, Any]], facts: Mapping[tuple[str, str], Mapping[str, str | None]]
) -> list[Tally]:
    """Tally rows of the reward `line_survival`, by these facts of each edit."""
    tallies: list[Tally] = []
    for row in rows:
        if row["target_kind"] == "edit" and row["reason"] not in _NO_LINES:
            fate = {"scored": "known", "pending": "pending"}.get(row["state"], "unknown")
            sums = {fate: row["weight"], "standing": (row["value"] or 0.0) * row["weight"]}
            own = [("all", None), *facts[row["session_id"], row["target_id"]].items()]
            tallies += [Tally(kind, name, row["horizon_s"], 1, **sums) for kind, name in own]
    return tallies
