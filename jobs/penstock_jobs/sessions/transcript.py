"""A session as a person reads it: who said what, what tools did, edits as diffs coloured by what
became of them, and rewards beside what they are about. Pure: a record in, styled lines out."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, cast

import msgspec

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.texts.trail import EditNames
from penstock_jobs.sessions.edit_fates import EditFate, Fate, edit_fates
from penstock_jobs.sessions.session_record import EventRecord, SessionRecord
from penstock_jobs.shards.session_events import (
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

#: A line is texts with their styles.
Line = list[tuple[str, str]]
#: What is printed of a text unless all is asked for.
_TEXT_LINES_MAX = 40
_OUTPUT_LINES_MAX = 8
_DIFF_LINES_MAX = 60
_LINE_CHARS_MAX = 400
_FATE_STYLES: Mapping[Fate, str] = {
    "surviving": "green",
    "reworked": "yellow",
    "gone": "red strike",
    "unknown": "",
}
#: Where colours are not seen.
_FATE_WORDS: Mapping[Fate, str] = {"reworked": "  ← reworked", "gone": "  ← gone"}
Rewards = Mapping[tuple[str, str], Sequence[dict[str, Any]]]


@dataclass(frozen=True)
class Transcript:
    """`rewards` are those shown beside their targets, by kind and target; `whole` leaves nothing
    out."""

    record: SessionRecord
    fates: Mapping[str, EditFate]
    rewards: Rewards
    whole: bool = False

    def lines(self) -> Iterator[Line]:
        turn, names = 0, EditNames()
        for number, event in enumerate(self.record.events):
            payload = _payload_of(event)
            if event.type == "user_message":
                if number:
                    yield from self._rewards("turn", str(turn))
                turn += 1
            if event.type == "edit":
                fields = _fields(event)
                seen = {"ts": 0, "seq": event.seq, "event_id": event.event_id}
                seen["ts"] = round(event.ts.timestamp() * 1_000_000)
                name = names.of(seen | {"edit_id": fields.get("edit_id")})
                yield from self._edit(name, fields)
            else:
                yield from self._event(event, payload, turn)
        yield from self._rewards("turn", str(turn))

    def _event(self, event: EventRecord, payload: EventPayload | None, turn: int) -> Iterator[Line]:
        clock = f"{event.ts:%H:%M:%S}"
        match payload:
            case UserMessagePayload():
                yield [("", "")]
                by = "user, written by a program" if payload.synthetic else "user"
                yield [(f"{clock} {by}", "bold cyan"), (f"  turn {turn}", "dim")]
                yield from self._text(payload.text)
            case ModelCallPayload():
                yield from self._model_call(clock, event, payload)
            case ToolResultPayload():
                ok = _fields(event).get("ok")
                failed, style = (" failed", "red") if ok is False else ("", "dim")
                yield [(f"{clock} {payload.tool or 'tool'}{failed}", style)]
                yield from self._text(text_of(payload.output), _OUTPUT_LINES_MAX, "dim")
            case FeedbackPayload():
                style = "red" if payload.refuses else "green"
                value = "" if payload.value is None else f" {payload.value}"
                yield [(f"{clock} user's feedback: {payload.kind}{value}", style)]
                yield from self._text(_fields(event).get("comment"))
            case CompactionPayload():
                yield [(f"{clock} the conversation was compacted here", "magenta")]
                yield from self._text(payload.summary, style="dim")
            case SessionStartPayload():
                facts = {name: value for name, value in _fields(event).items() if name != "tools"}
                system = facts.pop("system", None)
                said = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
                yield [(f"{clock} session begins" + (f": {said}" if said else ""), "dim")]
                yield from self._text(system, _OUTPUT_LINES_MAX, "dim")
            case SessionEndPayload():
                yield [(f"{clock} session ends: {payload.reason}", "dim")]
            case _:
                yield from self._other(clock, event)

    def _other(self, clock: str, event: EventRecord) -> Iterator[Line]:
        fields = _fields(event)
        if event.type == "file_observed":
            what = "is deleted" if fields.get("deleted") else "was looked at"
            yield [(f"{clock} {fields.get('path')} {what}", "dim")]
            return
        facts = {name: value for name, value in fields.items() if not isinstance(value, list)}
        said = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        style = "red" if event.type in ("error", "interrupt") else "dim"
        text = f"{clock} {event.type}" + (f": {said}" if said else "")
        yield [(text[:_LINE_CHARS_MAX], style)]

    def _model_call(
        self, clock: str, event: EventRecord, payload: ModelCallPayload
    ) -> Iterator[Line]:
        served = event.checkpoint or payload.model or ""
        yield [(f"{clock} agent", "bold"), (f"  {served}", "dim")]
        yield from self._text(payload.thinking, style="italic dim")
        yield from self._text(payload.text)
        for call in tool_calls_of(payload):
            yield [(f"  → {call.name} ", "blue")]
            yield from self._text(call.arguments, _OUTPUT_LINES_MAX, "blue")
        yield from self._rewards("model_call", payload.call_id or event.event_id or "")

    def _edit(self, name: str, fields: Mapping[str, Any]) -> Iterator[Line]:
        fate = self.fates.get(name)
        yield [("", "")]
        yield [(f"edit {name}: {fields.get('path')}", "bold")]
        yield [("  " + _summary_of(fate), "dim")]
        before, after = (str(fields.get(key) or "").splitlines() for key in ("before", "after"))
        diff = list(unified_diff(before, after, lineterm="", n=2))[2:]
        added = [line[1:] for line in diff if line.startswith("+")]
        fates = iter(fate.of_lines(added) if fate else cast(list[Fate], ["unknown"] * len(added)))
        shown = diff if self.whole else diff[:_DIFF_LINES_MAX]
        for line in shown:
            yield _diff_line(line, next(fates) if line.startswith("+") else None)
        if len(diff) > len(shown):
            yield [(f"  … {len(diff) - len(shown)} lines more", "dim")]
        yield from self._rewards("edit", name)

    def _rewards(self, kind: str, target: str) -> Iterator[Line]:
        rows = self.rewards.get((kind, target), ())
        if rows:
            values = ", ".join(map(_reward_text, rows))
            label = f"turn {target}: " if kind == "turn" else ""
            yield [(f"  ⇒ {label}{values}", "bold magenta")]

    def _text(
        self, text: str | None, lines_max: int = _TEXT_LINES_MAX, style: str = ""
    ) -> Iterator[Line]:
        lines = (text or "").splitlines()
        shown = lines if self.whole else lines[:lines_max]
        for line in shown:
            cut = line if self.whole or len(line) <= _LINE_CHARS_MAX else line[:_LINE_CHARS_MAX]
            yield [("  " + cut + ("" if cut is line else " …"), style)]
        if len(lines) > len(shown):
            yield [(f"  … {len(lines) - len(shown)} lines more", "dim")]


def transcript_of(record: SessionRecord, bucket: Bucket, *, whole: bool = False) -> Transcript:
    """With what the bucket, the session's own, tells of its edits; and the rewards that count, at
    the horizon at which they do."""
    session = record.session["session_id"] if record.session else ""
    terms = record.explanation.terms if record.explanation else []
    horizons = {term.name: term.horizon_s for term in terms}
    rewards: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in record.rewards:
        name = row["name"]
        if name in horizons and row["horizon_s"] == horizons[name]:
            rewards[row["target_kind"], row["target_id"]].append(row)
    return Transcript(record, edit_fates(bucket, session), rewards, whole)


def head_lines(record: SessionRecord) -> Iterator[Line]:
    """What is known of the session, and why it is worth what it is."""
    session = record.session or {}
    facts = ("project", "user", "checkpoint", "consent", "client", "repo", "parent_session", "link")
    yield [(f"session {session.get('session_id')}", "bold")]
    known = [f"{name} {session[name]}" for name in facts if session.get(name)]
    yield [("  " + ", ".join(known), "")]
    counted = ("events", "user_messages", "model_calls", "tool_calls", "edits", "feedback")
    counts = [f"{session[name]} {name.replace('_', ' ')}" for name in counted if session.get(name)]
    begun = str(session.get("first_ts")).replace("T", " ")[:16]
    yield [(f"  {begun} UTC, ", ""), (", ".join(counts), "")]
    if record.explanation is not None:
        yield [("  " + record.explanation.sentence(), "bold magenta")]
    else:
        yield [("  No run has computed its rewards: `penstock rewards run`.", "dim")]


def _payload_of(event: EventRecord) -> EventPayload | None:
    decoded, _ = decode_events([Event(0, event.seq, event.type, None, bytes(event.payload))])
    return decoded[0][1] if decoded else None


def _fields(event: EventRecord) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(event.payload)
    return fields


def _diff_line(line: str, fate: Fate | None) -> Line:
    text = "  " + line[:_LINE_CHARS_MAX]
    if fate is None:
        return [(text, "dim")]
    return [(text, _FATE_STYLES[fate]), (_FATE_WORDS.get(fate, ""), "dim")]


def _summary_of(fate: EditFate | None) -> str:
    if fate is None or (fate.horizon_s is None and fate.unseen is None):
        return "nobody knows what became of it"
    if fate.horizon_s is None:
        return f"what became of it is not known: {fate.unseen}"
    counts = fate.counts()
    parts = [f"{counts[kind]} {kind}" for kind in ("surviving", "reworked", "gone") if counts[kind]]
    return f"after {fate.horizon_s} s of its lines: {', '.join(parts) or 'none told apart'}"


def _reward_text(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return f"{row['name']} {row['state']}" + (f" ({row['reason']})" if row["reason"] else "")
    return f"{row['name']} {row['value']:.3f}"
