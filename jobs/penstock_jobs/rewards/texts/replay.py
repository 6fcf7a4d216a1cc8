"""Replay of the edits and observations of a chain of sessions, in order.

An edit's `before` is the known file, or a region that occurs in it exactly once. If it is most of
the file, others changed the file in between; otherwise the edit does not match. Until a file is
observed as a whole, only the regions of its edits are known.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from penstock_jobs.rewards.texts import changes, provenance, trail
from penstock_jobs.rewards.texts.changes import (
    CompareCost,
    TextChange,
    TooExpensive,
    ink,
    place_line_changes,
)
from penstock_jobs.rewards.texts.languages import language_of
from penstock_jobs.rewards.texts.moves import Moves, gone_lines, recall, widen
from penstock_jobs.rewards.texts.open_edits import OpenEdits
from penstock_jobs.rewards.texts.places import generated_mark, place_of
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState, KnownFile, first_state
from penstock_jobs.rewards.texts.trail import (
    EditRange,
    HorizonState,
    Row,
    TrackedEdit,
    TrailTerms,
    file_names,
)

#: Observations this close are simultaneous: a file may have moved to another path.
MOMENT_US = trail.SECOND
#: A `before` that keeps this share of the file is the file, changed by others.
SAME_FILE_SHARE = 0.8
#: With this share it is the file if it also shows the ends of the file.
CHANGED_FILE_SHARE = 0.5
BYTE_ORDER_MARK = "\ufeff"
_EDIT, _LOOK, _COMMIT = range(3)
_PATHS = ("path", "renamed_from")
#: Changes between texts, by hashes of these: chains of a repository meet the same commits.
_CHANGES: dict[tuple[int, ...], TextChange] = {}
_CHANGES_MAX = 1 << 15


class _Mismatch(Exception):
    """The replaced text is missing or occurs several times."""


def replay(
    edits: Sequence[Row],
    observations: Sequence[Row],
    commits: Sequence[Row],
    *,
    turns_us: Sequence[int],
    ended_us: int | None,
    as_of_us: int,
    terms: TrailTerms,
) -> list[TrackedEdit]:
    """Follow the edits of a chain up to `as_of_us`.

    Rows of edits have `turn` and perhaps `request`, commits `files`."""
    edits, observations, commits = _with_file_names(edits, observations, commits)
    chain = _ChainReplay(turns_us, terms)
    tracked: list[TrackedEdit] = []
    names: defaultdict[str, trail.EditNames] = defaultdict(trail.EditNames)
    last_look_us = -1
    for ts, kind, row in trail.in_order(edits, observations, commits):
        chain.watches.pass_until(min(ts, as_of_us))
        if kind == _EDIT:
            own, name = row["session_id"], names[row["session_id"]].of(row)
            facts = (row["path"], ts, row["turn"], row["checkpoint"], row.get("request"))
            edit = TrackedEdit(len(tracked) + 1, own, name, *facts)
            tracked.append(edit)
            if ts <= as_of_us:
                chain.end_moment()
                chain.edit(edit, _without_mark(row["before"]), _without_mark(row["after"]))
        elif ts <= as_of_us:
            last_look_us = max(last_look_us, ts)
            chain.end_moment(before_us=ts - MOMENT_US)
            if kind == _LOOK:
                chain.look(ts, row)
            else:
                chain.commit(ts, row["files"])
    chain.end_moment()
    chain.watches.conclude(tracked, as_of_us, ended_us, last_look_us)
    return tracked


def _with_file_names(
    edits: Sequence[Row], looks: Sequence[Row], commits: Sequence[Row]
) -> tuple[Sequence[Row], Sequence[Row], Sequence[Row]]:
    entries = [entry for commit in commits for entry in commit["files"]]
    sent = [row["path"] for rows in (edits, looks) for row in rows]
    sent += [entry.get(key) for entry in entries if isinstance(entry, dict) for key in _PATHS]
    names = file_names(path for path in sent if isinstance(path, str))
    names = {path: name for path, name in names.items() if path != name}
    if not names:
        return edits, looks, commits

    def renamed(entry: Row) -> Row:
        if not isinstance(entry, dict):
            return entry
        paths = {key: path for key in _PATHS if isinstance(path := entry.get(key), str)}
        return entry | {key: names.get(path, path) for key, path in paths.items()}

    return (
        [renamed(edit) for edit in edits],
        [renamed(look) for look in looks],
        [{**commit, "files": [renamed(entry) for entry in commit["files"]]} for commit in commits],
    )


class _ChainReplay:
    def __init__(self, turns_us: Sequence[int], terms: TrailTerms) -> None:
        self._terms = terms
        self._cost = CompareCost(terms.cells_max)
        self._files: dict[str, KnownFile] = {}
        self.watches = OpenEdits(self._files, terms)
        self._moves = Moves(self._files, turns_us, terms.move_min, self._cost)
        # Observations of the current moment: a vanished file may still appear elsewhere.
        self._looks: list[tuple[int, str]] = []

    def end_moment(self, before_us: int | None = None) -> None:
        if self._looks and (before_us is None or self._looks[0][0] < before_us):
            looks, self._looks = self._looks, []
            for ts, path in looks:
                self.watches.observe(ts, path)

    def edit(self, edit: TrackedEdit, before: str, after: str) -> None:
        if not edit.path or undecodable(before) or undecodable(after):
            edit.problem = "undecodable"
            return
        try:
            part, start, before, after = self._locate(edit, before, after)
        except (_Mismatch, TooExpensive) as error:
            edit.problem = "before_mismatch" if isinstance(error, _Mismatch) else "too_expensive"
            return
        file = self._files[edit.path]
        state = file.parts[part]
        was_generated = _was_generated(file, state)
        is_generated = was_generated or generated_mark(after)
        edit.place = "generated" if is_generated else place_of(edit.path)
        excuses = was_generated or edit.place != "generated"
        edit.place_of_loss = edit.place if excuses else "code"
        end = start + len(before)
        text = state.text[:start] + after + state.text[end:]
        self.watches.observe_region(edit.ts_us, edit.path, state, (start, end))
        try:
            change = self._compare(before, after)
        except TooExpensive:
            edit.problem = "too_expensive"
            self.watches.lose(state)
            file.put(part, first_state(text, whole=state.whole))
            return
        in_file = provenance.shifted(change, start, len(before), len(after), len(state.text) - end)
        self.watches.rework(state, in_file)
        gone = gone_lines(state, in_file, self._terms.move_min)
        self._moves.vanish(edit.ts_us, gone, edit.owner)
        live, whole, owner = self.watches.live, state.whole, edit.owner
        now = provenance.after_change(
            state, text, in_file, live, whole=whole, owner=owner, start=start
        )
        now = self._moves.claimed(edit.ts_us, now, in_file, edit.owner)
        moved = list(self._moves.take(edit, gone))
        now = self._moves.bring(edit, now)
        for other in [*moved, now]:
            self.watches.restore(other)
        places = _describe(edit, before, after, change, now)
        ranges = {key: (start + i, start + j) for key, (i, j) in places.items()}
        ranges = {**now.ranges, **ranges}
        edit.made = now = FileState(text, now.runs, ranges, now.whole, now.language)
        file.put(part, now)
        if not now.whole:
            edit.region = before
        lines = changes.reshaped_lines(before, after, change)
        edit.reshaped = [(start + i, start + j) for i, j in lines]
        if edit.problem is None:
            self.watches.watch(edit, now)

    def _locate(self, edit: TrackedEdit, before: str, after: str) -> tuple[int, int, str, str]:
        """Locate an edit: part, place, and its texts with the line ends of the file."""
        file = self._files.get(edit.path)
        if file is None:
            state = first_state(before, whole=not before)
            file = self._files[edit.path] = KnownFile(edit.path, [state], self.watches.changed)
            file.put(0, state)
            return 0, 0, before, after
        for part, state in enumerate(file.parts):
            if state.text == before:
                return part, 0, before, after
        if not before:
            raise _Mismatch
        for old, new in _line_ends(before, after):
            states = enumerate(file.parts)
            places = [(part, at) for part, state in states for at in _places(state.text, old)]
            if len(places) == 1:
                return *places[0], old, new
            if places:
                raise _Mismatch
        if self._is_same_file(file, before):
            self._see(edit.ts_us, edit.path, before, whole=file.whole)
        elif file.whole:
            raise _Mismatch
        else:
            widen(file, before, edit.owner)
        return len(file.parts) - 1, 0, before, after

    def _is_same_file(self, file: KnownFile, before: str) -> bool:
        if len(file.parts) > 1:
            return False
        known = file.parts[0].text
        if not file.whole and known in before:
            return True
        sizes = len(ink(known)), len(ink(before))
        size = max(sizes)
        # The smaller size bounds what can still be there.
        if min(sizes) < (CHANGED_FILE_SHARE if file.whole else SAME_FILE_SHARE) * size:
            return False
        try:
            change = self._compare(known, before)
        except TooExpensive:
            return False
        still = sum(len(ink(known[i : i + n])) for i, _, n in change.kept + change.moved)
        if still >= SAME_FILE_SHARE * size > 0:
            return True
        if not (file.whole and change.kept):
            return False
        # If `before` lacks the ends of the file, it is a region.
        first, last = change.kept[0], change.kept[-1]
        head = len(ink(known[: first.i])) - len(ink(before[: first.j]))
        tail = len(ink(known[last.i + last.n :])) - len(ink(before[last.j + last.n :]))
        lacks = max(head, 0) + max(tail, 0)
        return still >= CHANGED_FILE_SHARE * size and lacks <= (1 - SAME_FILE_SHARE) * size

    def look(self, ts: int, row: Row) -> None:
        path, text = row["path"], "" if row["deleted"] else row["text"]
        text = text and _without_mark(text)
        if row["branch_changed"]:
            self.watches.note(ts, path, HorizonState("censored", "branch_changed"))
        elif not path or text is None or undecodable(text):
            self.watches.note(ts, path, HorizonState("invalid", "undecodable"))
        else:
            try:
                self._see(ts, path, text)
            except TooExpensive:
                self.watches.note(ts, path, HorizonState("invalid", "too_expensive"))
            else:
                self._looks.append((ts, path))

    def commit(self, ts: int, files: Sequence[object]) -> None:
        for entry in files:
            if not isinstance(entry, dict) or not isinstance(path := entry.get("path"), str):
                continue
            old, text, deleted = (entry.get(key) for key in ("renamed_from", "text", "deleted"))
            if isinstance(old, str) and old in self._files and path not in self._files:
                self._files[path] = file = self._files.pop(old)
                file.path = path
                self.watches.renamed(old, path)
            if deleted is True or isinstance(text, str):
                look = {"path": path, "text": text, "deleted": deleted is True}
                self.look(ts, {**look, "branch_changed": False})

    def _see(self, ts: int, path: str, text: str, *, whole: bool = True) -> None:
        """Learn that the file is `text`, or contains it. Raises TooExpensive."""
        file = self._files.get(path)
        if file is None:
            state = first_state(text, whole=True)
            file = self._files[path] = KnownFile(path, [state], self.watches.changed)
            change = None
        else:
            only = file.parts[0]
            if len(file.parts) == 1 and only.text == text:
                if not only.whole:
                    file.put(0, replace(only, whole=True))
                return
            parts, reworked = recall(file, text, self._terms.move_min, self._cost)
            self.watches.take(reworked)
            base = provenance.joined_state(parts, text)
            change = None if base.whole else provenance.placed(base, text)
            change = change or self._compare(base.text, text)
            state = provenance.after_change(
                base, text, change, self.watches.live, whole=whole, clipped=True
            )
            if text in file.known:  # undoing brings back who wrote it
                state = replace(state, runs=file.known[text].runs)
            elif base.pieces:
                state = self._by_others(path, base, state, change)
            gone = gone_lines(base, change, self._terms.move_min) if base.pieces else ()
            file.parts, file.shown = [state], [(0, "")]
            for lines in self._moves.vanish(ts, gone, OTHERS):
                self._moves.claim_elsewhere(ts, path, lines)
        if self.watches.live:
            state = self._moves.claimed(ts, state, change, OTHERS)
            self._moves.arrived.append((ts, path, state, change))
        file.put(0, state)

    def _by_others(
        self, path: str, base: FileState, state: FileState, change: TextChange
    ) -> FileState:
        state = self._moves.copied(base, state, change)
        if state.language is None:
            covered = sorted((block.j, block.n) for block in change.kept + change.moved)
            language = language_of(path)
            if language is not None and any(
                language.may_disable(state.text, start, end)
                for start, end in provenance.between(covered, len(state.text))
            ):
                state = replace(state, language=language)
        return state

    def _compare(self, old: str, new: str) -> TextChange:
        key = (hash(old), len(old), hash(new), len(new), self._cost.limit, self._terms.move_min)
        if (change := _CHANGES.get(key)) is None:
            change = changes.compare(old, new, self._cost, self._terms.move_min)
            if not change.moved:
                change = change._replace(kept=place_line_changes(change.kept, old, new))
            if len(_CHANGES) >= _CHANGES_MAX:
                _CHANGES.clear()
            _CHANGES[key] = change
        return change


def _was_generated(file: KnownFile, state: FileState) -> bool:
    """Whether it was generated or locked already, and not by the agent's word."""
    mark = generated_mark(state.text)
    is_marked = mark is not None and all(run.owner == OTHERS for run in state.cut(*mark))
    return is_marked or (file.of_others and place_of(file.path) == "generated")


def _without_mark(sent: str | None) -> str:
    return (sent or "").removeprefix(BYTE_ORDER_MARK)


def undecodable(text: str) -> bool:
    return "\0" in text or "\ufffd" in text


def _describe(
    edit: TrackedEdit, before: str, after: str, change: TextChange, now: FileState
) -> dict[tuple[int, int], tuple[int, int]]:
    """Store what the edit wrote and removed. Returns the places of its ranges in `after`."""
    gone = provenance.between(
        sorted((block.i, block.n) for block in change.kept + change.moved), len(before)
    )
    edit.after = after
    edit.put(now)
    only_took = not edit.written and any(before[start:end].strip() for start, end in gone)
    if not edit.written and not only_took:
        edit.problem = "nothing_written"
    places = {}
    for number, (i, i_end, j, j_end) in enumerate(
        changes.gaps(change.kept, len(before), len(after))
    ):
        edit.ranges.append(EditRange(before[i:i_end], after[j:j_end]))
        places[edit.owner, number] = (j, j_end)
        if only_took and before[i:i_end].strip():
            edit.deleted[number] = before[i:i_end]
    return places


def _line_ends(before: str, after: str) -> list[tuple[str, str]]:
    unix = (before.replace("\r\n", "\n"), after.replace("\r\n", "\n"))
    dos = (unix[0].replace("\n", "\r\n"), unix[1].replace("\n", "\r\n"))
    return [(before, after), *(form for form in (unix, dos) if form[0] != before)]


def _places(text: str, part: str) -> list[int]:
    """Find up to two places; more make no difference."""
    first = text.find(part)
    if first < 0:
        return []
    second = text.find(part, first + 1)
    return [first] if second < 0 else [first, second]
