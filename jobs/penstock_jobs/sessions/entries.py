"""The entries of a session, for pages and terminals: texts, diffs, fates of lines, rewards."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

import msgspec
from rapidfuzz.distance import Indel

from penstock_jobs.rewards.measures.verdict import REQUEST
from penstock_jobs.rewards.texts.survival import LineFate
from penstock_jobs.rewards.texts.trail import EditNames
from penstock_jobs.sessions.edit_fates import EditFate, Fate
from penstock_jobs.sessions.reading import EventRecord
from penstock_jobs.shards.conversation.session_events import (
    CompactionPayload,
    Event,
    EventPayload,
    FeedbackPayload,
    ModelCallPayload,
    SessionEndPayload,
    SessionStartPayload,
    ToolResultPayload,
    UserMessagePayload,
    decode_events,
    text_of,
    tool_calls_of,
)

TEXT_CHARS_MAX = 20_000
_REQUEST_CHARS_MAX = 140
DIFF_LINES_MAX = 4_000
_CONTEXT_LINES = 3
Kind = Literal["user", "agent", "tool", "edit", "feedback", "note", "problem"]
Sign = Literal["+", "-", " ", "…"]
Reward = Mapping[str, Any]


class ShownText(msgspec.Struct, frozen=True):
    text: str
    left_out: int = 0  # characters


class ShownCall(msgspec.Struct, frozen=True):
    """A tool call: its arguments by name, or as text where they are no JSON object."""

    name: str
    fields: Sequence[tuple[str, ShownText]]
    arguments: ShownText


class DiffLine(msgspec.Struct, frozen=True):
    sign: Sign
    text: str
    fate: Fate | None = None


class Diff(msgspec.Struct, frozen=True):
    lines: Sequence[DiffLine]
    added: int
    removed: int
    too_long: bool = False


@dataclass(kw_only=True)
class Entry:
    """An entry of a session. `number` counts its events, `turn` the user's messages."""

    number: int
    turn: int
    at: datetime
    kind: Kind
    title: str
    about: str = ""
    text: ShownText | None = None
    thinking: ShownText | None = None
    calls: Sequence[ShownCall] = ()
    failed: bool = False
    diff: Diff | None = None
    fate: EditFate | None = None
    fate_sentence: str = ""
    rewards: Sequence[Reward] = ()
    #: Of the turn that ended before it, and of the request that ended with that turn.
    turn_rewards: Sequence[Reward] = ()
    request_rewards: Sequence[Reward] = ()
    has_tokens: bool = False
    #: Sent by a program: folded, since nobody wrote or asked it.
    is_context: bool = False
    is_look: bool = False
    name: str = ""


@dataclass
class EntryPlace:
    """The events and turns before a part of a session."""

    events: int = 0
    turn: int = 0
    names: EditNames = field(default_factory=EditNames)
    #: Longest shown text; None for no limit.
    chars_max: int | None = TEXT_CHARS_MAX

    def cut(self, text: str | None) -> ShownText | None:
        if not text:
            return None
        shown = text[: self.chars_max]
        return ShownText(shown, len(text) - len(shown))


class Rewards:
    """The rewards of a session by their targets: at `horizon_s`, else at the latest horizon that
    has a value."""

    def __init__(self, rows: Sequence[Reward], horizon_s: int | None = None) -> None:
        kept: dict[tuple[str, str, str], Reward] = {}
        for row in rows:
            place = row["target_kind"], row["target_id"], row["name"]
            kept[place] = _better(kept.get(place), row, horizon_s)
        self._rows: defaultdict[tuple[str, str], list[Reward]] = defaultdict(list)
        for (kind, target, _), row in sorted(kept.items(), key=lambda item: item[0]):
            self._rows[kind, target].append(row)

    def of(self, kind: str, target: str) -> list[Reward]:
        return self._rows.get((kind, target), [])

    def of_turn(self, turn: int) -> list[Reward]:
        return [row for row in self.of("turn", str(turn)) if row["name"] != REQUEST]

    def of_ended_request(self, turn: int) -> list[Reward]:
        """The rewards of the request whose last turn it is."""
        own, following = (self._request(turn + later) for later in (0, 1))
        return self.of("request", own) if own and own != following else []

    def _request(self, turn: int) -> str:
        rows = (row for row in self.of("turn", str(turn)) if row["name"] == REQUEST)
        return next((str(int(row["value"])) for row in rows), "")


def _better(one: Reward | None, other: Reward, horizon_s: int | None) -> Reward:
    if one is None:
        return other
    if horizon_s is not None and horizon_s in (one["horizon_s"], other["horizon_s"]):
        return one if one["horizon_s"] == horizon_s else other
    rank = [(row["value"] is not None, row["horizon_s"] or 0) for row in (one, other)]
    return one if rank[0] >= rank[1] else other


def entries_of(
    events: Sequence[EventRecord],
    rewards: Rewards,
    fates: Mapping[str, EditFate],
    place: EntryPlace,
    *,
    last: bool,
) -> Iterator[Entry]:
    """Make the entries of a part of a session; `last` marks the end of the session.

    Successive observations of one file are one entry."""

    def single() -> Iterator[Entry]:
        for event in events:
            place.events += 1
            ended = place.turn
            place.turn += event.type == "user_message"
            entry = _entry(event, rewards, fates, place)
            if ended < place.turn and place.events > 1:
                _end_turn(entry, rewards, ended)
            yield entry
        if last and events:
            facts: dict[str, Any] = {"number": place.events, "turn": place.turn}
            entry = Entry(**facts, at=events[-1].ts, kind="note", title="")
            _end_turn(entry, rewards, place.turn)
            yield entry

    for _, run in groupby(single(), key=_look_of):
        first, *more = run
        if more:
            first.about = f"{1 + len(more)} times, until {more[-1].at:%H:%M:%S}"
        yield first


def _end_turn(entry: Entry, rewards: Rewards, turn: int) -> None:
    """Show the rewards of a turn and of the request that it ended. What both say is the request's:
    a request of one turn would say all twice."""
    entry.request_rewards = rewards.of_ended_request(turn)
    said = {(row["name"], row["value"], row["state"]) for row in entry.request_rewards}
    entry.turn_rewards = [
        row
        for row in rewards.of_turn(turn)
        if (row["name"], row["value"], row["state"]) not in said
    ]


def _look_of(entry: Entry) -> tuple[str, str, int]:
    """A key that successive observations of one file share, and other entries do not."""
    return entry.title, entry.about, -1 if entry.is_look else entry.number


def _entry(
    event: EventRecord, rewards: Rewards, fates: Mapping[str, EditFate], place: EntryPlace
) -> Entry:
    common: dict[str, Any] = {"number": place.events, "turn": place.turn, "at": event.ts}
    if event.type == "edit":
        return _edit(event, rewards, fates, place, common)
    decoded, _ = decode_events([Event(0, event.seq, event.type, None, bytes(event.payload))])
    payload: EventPayload | None = decoded[0][1] if decoded else None
    match payload:
        case UserMessagePayload():
            about = "sent by a program" if payload.synthetic else ""
            text = place.cut(payload.text)
            facts: dict[str, Any] = {"about": about, "text": text, "is_context": payload.synthetic}
            return Entry(**common, kind="user", title="User", **facts)
        case ModelCallPayload():
            return Entry(
                **common,
                kind="agent",
                title="Agent",
                about=event.checkpoint or payload.model or "",
                text=place.cut(payload.text),
                thinking=place.cut(payload.thinking),
                calls=[
                    _call(call.name, call.arguments or "", place) for call in tool_calls_of(payload)
                ],
                rewards=rewards.of("model_call", payload.call_id or event.event_id or ""),
                has_tokens=bytes(payload.tokens) not in (b"null", b""),
                name=payload.call_id or event.event_id or "",
            )
        case ToolResultPayload():
            failed = _fields(event).get("ok") is False
            title = f"{payload.tool or 'tool'}{' failed' if failed else ''}"
            text = place.cut(text_of(payload.output))
            return Entry(**common, kind="tool", title=title, text=text, failed=failed)
        case FeedbackPayload():
            value = "" if payload.value is None else f": {payload.value}"
            title, comment = f"Feedback, {payload.kind}{value}", _fields(event).get("comment")
            text = place.cut(str(comment)) if comment else None
            return Entry(**common, kind="feedback", title=title, text=text, failed=payload.refuses)
        case CompactionPayload():
            title = "Conversation compacted"
            return Entry(**common, kind="note", title=title, text=place.cut(payload.summary))
        case SessionStartPayload():
            return _start(event, place, common)
        case SessionEndPayload():
            title = "Session ends" + (f": {payload.reason}" if payload.reason else "")
            return Entry(**common, kind="note", title=title)
        case _:
            return _other(event, common)


def _call(name: str, arguments: str, place: EntryPlace) -> ShownCall:
    try:
        given = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        given = None
    fields = []
    for key, value in given.items() if isinstance(given, dict) else ():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        fields.append((key, place.cut(text) or ShownText("")))
    return ShownCall(name, fields, place.cut(arguments) or ShownText(""))


def request_of(events: Sequence[EventRecord]) -> str:
    """The beginning of the first message that no program sent: what the user wanted."""
    for event in events:
        fields = _fields(event) if event.type == "user_message" else {}
        if fields.get("text") and not fields.get("synthetic"):
            return " ".join(str(fields["text"])[:_REQUEST_CHARS_MAX].split())
    return ""


def _start(event: EventRecord, place: EntryPlace, common: Mapping[str, Any]) -> Entry:
    known = {name: value for name, value in _fields(event).items() if name != "tools"}
    system = known.pop("system", None)
    about = ", ".join(f"{name} {value}" for name, value in known.items() if value)
    text = place.cut(system) if isinstance(system, str) else None
    return Entry(**common, kind="note", title="Session begins", about=about[:400], text=text)


def _other(event: EventRecord, common: Mapping[str, Any]) -> Entry:
    fields = _fields(event)
    if event.type == "file_observed":
        seen = "was deleted" if fields.get("deleted") else "was observed"
        return Entry(**common, kind="note", title=f"{fields.get('path')} {seen}", is_look=True)
    facts = {name: value for name, value in fields.items() if not isinstance(value, list)}
    about = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    kind: Kind = "problem" if event.type in ("error", "interrupt") else "note"
    return Entry(**common, kind=kind, title=event.type.replace("_", " "), about=about[:400])


def _edit(
    event: EventRecord,
    rewards: Rewards,
    fates: Mapping[str, EditFate],
    place: EntryPlace,
    common: Mapping[str, Any],
) -> Entry:
    fields = _fields(event)
    seen: dict[str, Any] = {"ts": round(event.ts.timestamp() * 1_000_000), "seq": event.seq}
    seen |= {"event_id": event.event_id, "edit_id": fields.get("edit_id")}
    name = place.names.of(seen)
    fate = fates.get(name)
    before, after = (str(fields.get(key) or "") for key in ("before", "after"))
    return Entry(
        **common,
        kind="edit",
        title=str(fields.get("path")),
        diff=diff_of(before, after, fate),
        fate=fate,
        fate_sentence=_fate_sentence(fate),
        rewards=rewards.of("edit", name),
        name=name,
    )


def diff_of(before: str, after: str, fate: EditFate | None) -> Diff:
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > DIFF_LINES_MAX:
        return Diff([], len(new), len(old), too_long=True)
    marks = list(_marks(old, new))
    added = [text for sign, text in marks if sign == "+"]
    became = iter(fate.of_lines(added) if fate else [None] * len(added))
    lines = [DiffLine(s, t, next(became) if s == "+" else None) for s, t in marks]
    return Diff(_folded(lines), len(added), sum(sign == "-" for sign, _ in marks))


def _marks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Sign, str]]:
    """Signs and lines of a diff. In each change, removed lines come before added ones."""
    came: list[str] = []
    for step in Indel.opcodes(old, new):
        if step.tag == "equal":
            yield from (("+", line) for line in came)
            came = []
            yield from ((" ", line) for line in old[step.src_start : step.src_end])
        else:
            yield from (("-", line) for line in old[step.src_start : step.src_end])
            came += new[step.dest_start : step.dest_end]
    yield from (("+", line) for line in came)


def _folded(lines: Sequence[DiffLine]) -> list[DiffLine]:
    near = set[int]()
    for at, line in enumerate(lines):
        if line.sign != " ":
            near.update(range(at - _CONTEXT_LINES, at + _CONTEXT_LINES + 1))
    shown: list[DiffLine] = []
    for is_near, run in groupby(enumerate(lines), key=lambda placed: placed[0] in near):
        part = [line for _, line in run]
        if near:
            shown += part if is_near else [DiffLine("…", f"{len(part)} unchanged lines")]
    return shown


def _fate_sentence(fate: EditFate | None) -> str:
    if fate is None or (fate.horizon_s is None and fate.unseen is None):
        return ""
    if fate.horizon_s is None:
        return f"Fate unknown: {fate.unseen}"
    counts = fate.counts()
    kinds: tuple[LineFate, ...] = ("surviving", "reworked", "gone")
    parts = [f"{counts[kind]} {kind}" for kind in kinds if counts[kind]]
    return f"{', '.join(parts) or 'no lines to tell apart'} after {fate.horizon_s} s"


def _fields(event: EventRecord) -> dict[str, Any]:
    fields: Any = msgspec.json.decode(event.payload)
    return fields if isinstance(fields, dict) else {}
