"""Live through a session: its edits and observations, in the order of (ts, seq).

An edit's `before` is the file as it is known, or occurs in it exactly once: a region. If it is
most of the file as it is known, others changed the file in the meantime, and the edit tells how.
Otherwise it does not match. As long as nobody has seen a file as a whole, it is known by the
regions that its edits named, and a further one is not in contradiction to them.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from penstock_jobs.rewards.texts.changes import (
    CompareCost,
    TextChange,
    TooExpensive,
    compare,
    gaps,
    ink,
)
from penstock_jobs.rewards.texts.moves import Moves
from penstock_jobs.rewards.texts.open_horizons import Watches
from penstock_jobs.rewards.texts.provenance import (
    OTHERS,
    FileState,
    KnownFile,
    after_edit,
    after_others,
    between,
    first_state,
    joined_state,
    shifted,
)
from penstock_jobs.rewards.texts.regions import recall, widen
from penstock_jobs.rewards.texts.trail import (
    SECOND,
    EditNames,
    EditRange,
    Row,
    Sighting,
    TrackedEdit,
    Trail,
    TrailTerms,
    in_order,
)

#: Observations so close together are of one moment: a file that vanished may be seen to have
#: appeared at another path a little later.
MOMENT_US = SECOND
#: An edit's `before` that keeps so much of the file as it was is the file, changed by others.
SAME_FILE_SHARE = 0.8


class _Mismatch(Exception):
    """The text that the edit says it replaces is not there, or is there several times."""


class _Located(NamedTuple):
    part: int
    start: int
    before: str
    after: str


def replay(
    session_id: str,
    edits: Sequence[Row],
    observations: Sequence[Row],
    commits: Sequence[Row],
    *,
    turns_us: Sequence[int],
    ended_us: int | None,
    as_of_us: int,
    terms: TrailTerms,
) -> Trail:
    """Live through a session up to `as_of_us`. Rows have `ts` in microseconds and the columns of
    the views; a commit has `files`. `turns_us` is when each turn began, `ended_us` when the
    session ended."""
    return _Replay(turns_us, ended_us, as_of_us, terms).run(
        session_id, edits, observations, commits
    )


class _Replay:
    def __init__(
        self, turns_us: Sequence[int], ended_us: int | None, as_of_us: int, terms: TrailTerms
    ) -> None:
        self._turns = turns_us
        self._ended = ended_us
        self._as_of = as_of_us
        self._terms = terms
        self._cost = CompareCost(terms.cells_max)
        self._compared: tuple[str, str, TextChange] = ("", "", TextChange([], []))
        self._files: dict[str, KnownFile] = {}
        self._watches = Watches(self._files, terms)
        self._moves = Moves(self._files, turns_us, terms.move_min, self._cost)
        # Looks of the moment that is not over: a file that vanished may yet appear elsewhere.
        self._looks: list[tuple[int, str]] = []
        self._last_look = -1

    def run(
        self,
        session_id: str,
        edits: Sequence[Row],
        observations: Sequence[Row],
        commits: Sequence[Row],
    ) -> Trail:
        events = in_order(edits, observations, commits)
        tracked: list[TrackedEdit] = []
        names = EditNames()
        for ts, kind, row in events:
            if kind == 0:
                edit = self._tracked(len(tracked) + 1, row, names)
                tracked.append(edit)
                if ts <= self._as_of:
                    self._flush()
                    self._edit(edit, row)
            elif ts <= self._as_of:
                if self._looks and ts > self._looks[0][0] + MOMENT_US:
                    self._flush()
                self._last_look = max(self._last_look, ts)
                if kind == 1:
                    self._look(ts, row)
                else:
                    self._commit(ts, row)
        self._flush()
        self._watches.conclude(tracked, self._as_of, self._ended, self._last_look)
        return Trail(session_id, tracked)

    # Edits

    def _tracked(self, owner: int, row: Row, names: EditNames) -> TrackedEdit:
        ts = row["ts"]
        return TrackedEdit(owner, names.of(row), row["path"], ts, self._turn(ts), row["checkpoint"])

    def _turn(self, ts: int) -> int:
        return max(bisect_right(self._turns, ts) - 1, 0)

    def _edit(self, edit: TrackedEdit, row: Row) -> None:
        before, after = row["before"] or "", row["after"] or ""
        if not edit.path or undecodable(before) or undecodable(after):
            edit.problem = "undecodable"
            return
        try:
            located = self._locate(edit, before, after)
        except _Mismatch:
            edit.problem = "before_mismatch"
            return
        except TooExpensive:
            edit.problem = "too_expensive"
            return
        state = self._files[edit.path].parts[located.part]
        region = (located.start, located.start + len(located.before))
        self._watches.sight_region(edit.ts_us, edit.path, state, region)
        try:
            change = self._compare(located.before, located.after)
        except TooExpensive:
            edit.problem = "too_expensive"
            change = None
        self._apply(edit, state, located, change)

    def _apply(
        self, edit: TrackedEdit, state: FileState, located: _Located, change: TextChange | None
    ) -> None:
        file = self._files[edit.path]
        start, end = located.start, located.start + len(located.before)
        rest = len(state.text) - end
        text = state.text[:start] + located.after + state.text[end:]
        if change is None:
            self._watches.lose(state)
            file.put(located.part, first_state(text, whole=state.whole))
            return
        in_file = shifted(change, start, len(located.before), len(located.after), rest)
        self._watches.rework(state, in_file)
        self._moves.vanish(edit.ts_us, state, in_file, edit.owner)
        now = after_edit(state, text, in_file, self._watches.live, owner=edit.owner, start=start)
        now = self._moves.claimed(edit.ts_us, now, in_file, edit.owner)
        ranges = {**now.ranges, **_describe(edit, located, change, now)}
        edit.made = now = FileState(text, now.runs, ranges, now.whole)
        file.put(located.part, now)
        if edit.problem is None:
            self._watches.watch(edit, now)

    def _locate(self, edit: TrackedEdit, before: str, after: str) -> _Located:
        """Where the edit was made. A file that is not known yet is known by its edits."""
        file = self._files.get(edit.path)
        if file is None:
            state = first_state(before, whole=not before)
            file = self._files[edit.path] = KnownFile(edit.path, [state], self._watches.changed)
            file.put(0, state)
            return _Located(0, 0, before, after)
        for part, state in enumerate(file.parts):
            if state.text == before:
                return _Located(part, 0, before, after)
        if not before:
            raise _Mismatch
        for old, new in _line_ends(before, after):
            found = [
                (part, at)
                for part, state in enumerate(file.parts)
                for at in _places(state.text, old)
            ]
            if len(found) == 1:
                return _Located(*found[0], old, new)
            if found:
                raise _Mismatch
        if self._is_same_file(file, before):
            # Others changed the file since it was last seen.
            self._others(edit.ts_us, edit.path, before, whole=file.whole)
        elif file.whole:
            raise _Mismatch
        else:
            widen(file, before, edit.owner)
        return _Located(len(file.parts) - 1, 0, before, after)

    def _is_same_file(self, file: KnownFile, before: str) -> bool:
        if len(file.parts) > 1:
            return False
        if not file.whole and file.parts[0].text in before:
            return True
        known = file.parts[0].text
        size = max(len(ink(known)), len(ink(before)))
        try:
            change = self._compare(known, before)
        except TooExpensive:
            return False
        still = sum(len(ink(known[i : i + n])) for i, _, n in change.kept + change.moved)
        return still >= SAME_FILE_SHARE * size > 0

    # What others did

    def _look(self, ts: int, row: Row) -> None:
        path, text = row["path"], "" if row["deleted"] else row["text"]
        reason = None
        if row["branch_changed"]:
            reason = Sighting("censored", "branch_changed")
        elif not path or text is None or undecodable(text):
            reason = Sighting("invalid", "undecodable")
        if reason is None:
            try:
                self._others(ts, path, text)
            except TooExpensive:
                reason = Sighting("invalid", "too_expensive")
        if reason is None:
            self._looks.append((ts, path))
        else:
            self._watches.note(ts, path, reason)

    def _commit(self, ts: int, row: Row) -> None:
        """A commit shows the files whose texts it carries."""
        for entry in row["files"]:
            if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
                continue
            path, old = entry["path"], entry.get("renamed_from")
            if isinstance(old, str) and old in self._files and path not in self._files:
                self._files[path] = self._files.pop(old)
                self._files[path].path = path
                self._watches.renamed(old, path)
            deleted = entry.get("deleted") is True
            if deleted or isinstance(entry.get("text"), str):
                self._look(
                    ts,
                    {
                        "path": path,
                        "text": entry.get("text"),
                        "deleted": deleted,
                        "branch_changed": None,
                    },
                )

    def _others(self, ts: int, path: str, text: str, *, whole: bool = True) -> None:
        """The file is seen to be `text`, or, if that is not the whole, to hold it."""
        file = self._files.get(path)
        if file is None:
            state = first_state(text, whole=True)
            file = self._files[path] = KnownFile(path, [state], self._watches.changed)
            change = None
        else:
            only = file.parts[0]
            if len(file.parts) == 1 and only.text == text:
                if not only.whole:
                    file.put(0, FileState(text, only.runs, only.ranges, True))
                return
            parts, reworked = recall(file, text, self._terms.move_min, self._cost)
            self._watches.take(reworked)
            base = joined_state(parts, text)
            change = self._compare(base.text, text)
            known = file.known.get(text)
            state = after_others(base, text, change, self._watches.live, known=known, whole=whole)
            gone = self._moves.vanish(ts, base, change, OTHERS)
            file.parts, file.shown = [state], [(0, "")]
            for loose in gone:
                self._moves.claim_elsewhere(ts, path, loose)
        if self._watches.live:
            state = self._moves.claimed(ts, state, change, OTHERS)
            self._moves.appear(ts, path, state, change)
        file.put(0, state)

    def _compare(self, old: str, new: str) -> TextChange:
        """Raises TooExpensive. What was compared just before is not compared again."""
        if self._compared[:2] != (old, new):
            change = compare(old, new, self._cost, self._terms.move_min)
            self._compared = (old, new, change)
        return self._compared[2]

    def _flush(self) -> None:
        """What was looked at in the last moment answers the horizons that it falls into."""
        looks, self._looks = self._looks, []
        for ts, path in looks:
            self._watches.sight(ts, path)


def undecodable(text: str) -> bool:
    """Whether the text was bytes that are no text."""
    return "\0" in text or "\ufffd" in text


def _describe(
    edit: TrackedEdit, located: _Located, change: TextChange, now: FileState
) -> dict[tuple[int, int], tuple[int, int]]:
    """Put down what the edit wrote and took away; return where its ranges are in the file."""
    before, after = located.before, located.after
    blocks = change.kept + change.moved
    gone = between(sorted((block.i, block.n) for block in blocks), len(before))
    edit.after = after
    edit.written = [
        (origin, origin + length)
        for origin, _, length in now.pieces.get(edit.owner, [])
        if after[origin : origin + length].strip()
    ]
    only_took = not edit.written and any(before[start:end].strip() for start, end in gone)
    if not edit.written and not only_took:
        edit.problem = "nothing_written"
    places = {}
    for number, (i, i_end, j, j_end) in enumerate(gaps(change.kept, len(before), len(after))):
        edit.ranges.append(EditRange(before[i:i_end], after[j:j_end]))
        places[edit.owner, number] = (located.start + j, located.start + j_end)
        if only_took and before[i:i_end].strip():
            edit.deleted[number] = before[i:i_end]
    return places


def _line_ends(before: str, after: str) -> list[tuple[str, str]]:
    """The texts with the line ends that the file may have."""
    bare, bare_after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    forms = [
        (before, after),
        (bare, bare_after),
        (bare.replace("\n", "\r\n"), bare_after.replace("\n", "\r\n")),
    ]
    return [form for at, form in enumerate(forms) if at == 0 or form[0] != before]


def _places(text: str, part: str) -> list[int]:
    """Where the part is in the text; two places are as good as any number."""
    first = text.find(part)
    if first < 0:
        return []
    second = text.find(part, first + 1)
    return [first] if second < 0 else [first, second]
