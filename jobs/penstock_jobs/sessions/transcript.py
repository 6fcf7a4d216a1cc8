"""A session as styled lines for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.measures.verdict import REQUEST
from penstock_jobs.sessions.edit_fates import Fate, edit_fates
from penstock_jobs.sessions.entries import (
    Diff,
    Entry,
    EntryPlace,
    Kind,
    Rewards,
    ShownText,
    entries_of,
)
from penstock_jobs.sessions.reading import SessionRecord

#: Texts with their styles.
Line = list[tuple[str, str]]
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
#: For terminals without colours.
_FATE_WORDS: Mapping[Fate, str] = {"reworked": "  ← reworked", "gone": "  ← gone"}
_STYLES: Mapping[Kind, str] = {
    "user": "bold cyan",
    "agent": "bold",
    "edit": "bold",
    "feedback": "green",
    "problem": "red",
}


def transcript_lines(
    record: SessionRecord, bucket: Bucket, *, whole: bool = False
) -> Iterator[Line]:
    session = record.session["session_id"] if record.session else ""
    terms = record.explanation.terms if record.explanation else []
    horizons = {term.name: term.horizon_s for term in terms}
    counted = [
        row
        for row in record.rewards
        if row["name"] == REQUEST
        or (row["name"] in horizons and row["horizon_s"] == horizons[row["name"]])
    ]
    place, fates = EntryPlace(chars_max=None), edit_fates(bucket, session)
    for entry in entries_of(record.events, Rewards(counted), fates, place, last=True):
        ended = entry.turn - (entry.kind == "user")
        yield from _reward_lines(entry.turn_rewards, f"turn {ended}: ")
        for number in {row["target_id"] for row in entry.request_rewards}:
            yield from _reward_lines(entry.request_rewards, f"request {number}: ")
        if entry.title:
            yield from _entry_lines(entry, whole=whole)


def _entry_lines(entry: Entry, *, whole: bool) -> Iterator[Line]:
    style = "red" if entry.failed else _STYLES.get(entry.kind, "dim")
    title = f"edit {entry.name}: {entry.title}" if entry.kind == "edit" else entry.title
    about = [part for part in (entry.about, f"turn {entry.turn}" * (entry.kind == "user")) if part]
    if entry.kind in ("user", "edit"):
        yield [("", "")]
    title = title if entry.kind == "edit" else title[:1].lower() + title[1:]
    yield [(f"{entry.at:%H:%M:%S} {title}", style), (f"  {', '.join(about)}", "dim")]
    quiet = entry.kind in ("tool", "note")
    yield from _text(entry.thinking, _TEXT_LINES_MAX, "italic dim", whole=whole)
    lines_max = _OUTPUT_LINES_MAX if quiet else _TEXT_LINES_MAX
    yield from _text(entry.text, lines_max, "dim" if quiet else "", whole=whole)
    for call in entry.calls:
        yield [(f"  → {call.name} ", "blue")]
        yield from _text(call.arguments, _OUTPUT_LINES_MAX, "blue", whole=whole)
    if entry.diff is not None:
        yield [("  " + (entry.fate_sentence or "Not observed afterwards"), "dim")]
        yield from _diff_lines(entry.diff, whole=whole)
    yield from _reward_lines(entry.rewards, "")


def _diff_lines(diff: Diff, *, whole: bool) -> Iterator[Line]:
    if diff.too_long:
        yield [(f"  {diff.added} lines added, {diff.removed} removed: too long to show", "dim")]
    shown = diff.lines if whole else diff.lines[:_DIFF_LINES_MAX]
    for line in shown:
        text = f"  {line.sign}{line.text}"[: None if whole else _LINE_CHARS_MAX]
        fate = line.fate
        if line.sign != "+" or fate is None:
            yield [(text, "" if line.sign == "+" else "dim")]
        else:
            yield [(text, _FATE_STYLES[fate]), (_FATE_WORDS.get(fate, ""), "dim")]
    if len(diff.lines) > len(shown):
        yield [(f"  … {len(diff.lines) - len(shown)} lines more", "dim")]


def _text(text: ShownText | None, lines_max: int, style: str, *, whole: bool) -> Iterator[Line]:
    lines = text.text.splitlines() if text else []
    shown = lines if whole else lines[:lines_max]
    for line in shown:
        cut = line if whole else line[:_LINE_CHARS_MAX]
        yield [("  " + cut + (" …" if len(cut) < len(line) else ""), style)]
    if len(lines) > len(shown):
        yield [(f"  … {len(lines) - len(shown)} lines more", "dim")]


def _reward_lines(rows: Sequence[Mapping[str, Any]], label: str) -> Iterator[Line]:
    if rows:
        yield [(f"  ⇒ {label}{', '.join(map(_reward_text, rows))}", "bold magenta")]


def head_lines(record: SessionRecord) -> Iterator[Line]:
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
        yield [("  No rewards yet: `penstock rewards run`.", "dim")]


def _reward_text(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return f"{row['name']} {row['state']}" + (f" ({row['reason']})" if row["reason"] else "")
    return f"{row['name']} {row['value']:.3f}"
