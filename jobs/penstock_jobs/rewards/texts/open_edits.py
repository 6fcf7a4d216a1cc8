"""Edits with open horizons, and the observations that answer them.

An observation costs only what it can answer: windows are considered once they begin, edits by the
paths that concern them, and files only after changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from penstock_jobs.rewards.texts.changes import TextChange
from penstock_jobs.rewards.texts.provenance import (
    OTHERS,
    FileState,
    KnownFile,
    OwnerRun,
    between,
    without,
)
from penstock_jobs.rewards.texts.trail import HorizonState, TrackedEdit, TrailTerms


@dataclass(eq=False)
class _OpenEdit:
    edit: TrackedEdit
    home: str
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    answers: dict[int, HorizonState] = field(default_factory=dict)
    notes: dict[int, HorizonState] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    broken: bool = False
    #: Its file when it was first known as a whole.
    first_whole: FileState | None = None


class OpenEdits:
    """Tracks open edits. `files` are the known files by path, which change."""

    def __init__(self, files: Mapping[str, KnownFile], terms: TrailTerms) -> None:
        self._files = files
        self._terms = terms
        self._all: dict[int, _OpenEdit] = {}
        self._reworked: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.live: set[int] = set()
        #: Owners that an observation of a path concerns.
        self._about: defaultdict[str, set[int]] = defaultdict(set)
        #: Windows that have not begun: (begin, owner, number of the horizon).
        self._coming: list[tuple[int, int, int]] = []
        #: Owners whose files were never known as a whole, by path.
        self._partial: defaultdict[str, set[int]] = defaultdict(set)
        #: (time of praise, owner).
        self._praises: list[tuple[int, int]] = []
        #: Numbers of begun windows by owner; some may be over.
        self._begun: defaultdict[int, set[int]] = defaultdict(set)
        #: (end of the last window, owner), and owners without open windows.
        self._ending: list[tuple[int, int]] = []
        self._answered: set[int] = set()
        #: Files that changed since their owners were last computed.
        self.changed: set[KnownFile] = set()
        self._owners: dict[KnownFile, set[int]] = {}
        self._holding: defaultdict[int, set[KnownFile]] = defaultdict(set)
        #: Owners whose text moved to other files since the last observation.
        self._moved: set[int] = set()

    def watch(self, edit: TrackedEdit, state: FileState) -> None:
        """Watch an edit. `state` is the file right after it and answers horizon 0."""
        watch = _OpenEdit(edit, edit.path, paths={edit.path})
        for number, (begin, end) in enumerate(self._windows(edit)):
            if self._terms.windows_us[number % len(self._terms.windows_us)][0] == 0:
                watch.answers[number] = HorizonState("scored", None, state, (state,))
            else:
                watch.windows[number] = (begin, end)
                heappush(self._coming, (begin, edit.owner, number))
        praises = edit.request.praised_us if edit.request else ()
        if later := [ts for ts in praises if ts > edit.ts_us]:
            heappush(self._praises, (later[0], edit.owner))
        if watch.windows:
            last = max(end for _, end in watch.windows.values())
            heappush(self._ending, (last, edit.owner))
        else:
            self._answered.add(edit.owner)
        self._all[edit.owner] = watch
        if state.whole:
            watch.first_whole = state
        else:
            self._partial[edit.path].add(edit.owner)
        self._about[edit.path].add(edit.owner)
        self.live.add(edit.owner)

    def _windows(self, edit: TrackedEdit) -> list[tuple[int, int]]:
        """Return the windows of the horizons, and then the windows of its request."""
        spans = self._terms.windows_us
        windows = [(edit.ts_us + begin, edit.ts_us + end) for begin, end in spans]
        if (request := edit.request) is not None:
            last_us, ended_us = request.last_us, request.ended_us
            for begin, end in spans:
                begins = last_us + begin if ended_us is None else min(ended_us, last_us + begin)
                windows.append((max(begins, edit.ts_us), last_us + end))
        return windows

    def pass_until(self, ts: int) -> None:
        """Note the files of edits that were praised before this time."""
        while self._praises and self._praises[0][0] < ts:
            watch = self._all[heappop(self._praises)[1]]
            watch.edit.praised = self._state(watch)

    def renamed(self, old: str, new: str) -> None:
        self._partial[new] |= self._partial.pop(old, set())
        for owner in self._about.pop(old, set()):
            watch = self._all[owner]
            if watch.home == old:
                watch.home = new
            if old in watch.paths:
                watch.paths = watch.paths - {old} | {new}
            self._about[new].add(owner)

    def rework(self, state: FileState, change: TextChange) -> None:
        blocks = sorted((block.i, block.n) for block in change.kept + change.moved)
        for start, end in between(blocks, len(state.text)):
            self.take(state.cut(start, end))

    def take(self, runs: Iterable[OwnerRun]) -> None:
        for length, owner, origin in runs:
            if owner > OTHERS:
                self._reworked[owner].append((origin, length))

    def restore(self, state: FileState) -> None:
        """Forget rework of text that stands in this state: the agent put it elsewhere."""
        for owner in self._reworked.keys() & state.pieces.keys():
            gone = sorted((start, start + length) for start, length in self._reworked[owner])
            here = [(piece.origin, piece.origin + piece.length) for piece in state.pieces[owner]]
            left = without(gone, here)
            self._reworked[owner] = [(start, end - start) for start, end in left]

    def lose(self, state: FileState) -> None:
        """Give up on edits with text in this state."""
        for owner in self.live.intersection(state.pieces):
            self._all[owner].broken = True

    def note(self, ts: int, path: str | None, at_horizon: HorizonState) -> None:
        for owner in self._about.get(path or "", ()):
            watch = self._all[owner]
            if path in watch.paths:
                for number, (begin, end) in watch.windows.items():
                    if begin <= ts <= end:
                        watch.notes.setdefault(number, at_horizon)

    def observe(self, ts: int, path: str) -> None:
        self._advance(ts)
        # Update the paths of edits that any observation could answer now.
        for owner in self._moved & self._begun.keys():
            if self._due(owner, ts):
                self._moved.discard(owner)
                if self._holding[owner]:
                    watch, paths = self._all[owner], {file.path for file in self._holding[owner]}
                    for left in watch.paths - paths - {watch.home}:
                        self._about[left].discard(owner)
                    for joined in paths:
                        self._about[joined].add(owner)
                    watch.paths = paths
        for watch, due in self._due_at(ts, path):
            if path in watch.paths:
                self._answer(ts, watch, due)
            else:
                for number in due:
                    watch.notes.setdefault(number, HorizonState("censored", "path_lost"))
        for owner in self._partial.pop(path, ()):
            self._all[owner].first_whole = self._home(self._all[owner])

    def observe_region(self, ts: int, path: str, state: FileState, region: tuple[int, int]) -> None:
        """Observe a region. It answers edits whose text lies within it."""
        self._advance(ts)
        whole = state.whole and region == (0, len(state.text))
        for watch, due in self._due_at(ts, path):
            pieces = state.pieces.get(watch.edit.owner, [])
            inside = (
                pieces
                and pieces[0].at >= region[0]
                and pieces[-1].at + pieces[-1].length <= region[1]
                and self._holders(watch.edit.owner) == [state]
            )
            if path in watch.paths and (whole or inside):
                self._answer(ts, watch, due)

    def conclude(
        self, edits: Sequence[TrackedEdit], as_of_us: int, ended_us: int | None, last_look_us: int
    ) -> None:
        """Store the state of each edit at each horizon, or why it is unknown."""
        self.changed.clear()
        self.pass_until(as_of_us + 1)
        for edit in edits:
            watch = self._all.get(edit.owner)
            for number, (begin, due_us) in enumerate(self._windows(edit)):
                if edit.problem:
                    at_horizon = HorizonState("invalid", edit.problem)
                elif watch is not None and number in watch.answers:
                    at_horizon = watch.answers[number]
                elif watch is None or due_us > as_of_us:
                    at_horizon = HorizonState("pending", due_us=due_us)
                elif watch.broken:
                    at_horizon = HorizonState("invalid", "too_expensive")
                elif number in watch.notes:
                    at_horizon = watch.notes[number]
                else:
                    ended = ended_us is not None and ended_us <= due_us
                    is_gone = ended and last_look_us < begin
                    reason = "workspace_gone" if is_gone else "unobserved"
                    at_horizon = HorizonState("censored", reason)
                is_plain = number < len(self._terms.windows_us)
                (edit.horizon_states if is_plain else edit.request_states).append(at_horizon)

    def _advance(self, ts: int) -> None:
        """Forget finished edits, begin windows, and update which files hold whose text."""
        while self._ending and self._ending[0][0] < ts:
            self._answered.add(heappop(self._ending)[1])
        for owner in self._answered & self.live:
            self.live.discard(owner)
            self._begun.pop(owner, None)
            watch = self._all[owner]
            for path in (watch.home, *watch.paths):
                self._about[path].discard(owner)
        self._answered.clear()
        while self._coming and self._coming[0][0] <= ts:
            _, owner, number = heappop(self._coming)
            if owner in self.live:
                self._begun[owner].add(number)
        for file in self.changed:
            owners = {owner for state in file.parts for owner in state.pieces if owner in self.live}
            before = self._owners.get(file, set())
            for owner in owners - before:
                self._holding[owner].add(file)
            for owner in before - owners:
                self._holding[owner].discard(file)
            self._moved |= owners ^ before
            self._owners[file] = owners
        self.changed.clear()

    def _due_at(self, ts: int, path: str) -> Iterator[tuple[_OpenEdit, list[int]]]:
        """Yield edits that an observation of the path concerns, with its windows."""
        for owner in self._about.get(path, set()) & self._begun.keys():
            if due := self._due(owner, ts):
                yield self._all[owner], due

    def _due(self, owner: int, ts: int) -> list[int]:
        windows = self._all[owner].windows
        due = [number for number in self._begun[owner] if windows[number][1] >= ts]
        if due:
            self._begun[owner] = set(due)
        else:
            del self._begun[owner]
        return due

    def _answer(self, ts: int, watch: _OpenEdit, due: Iterable[int]) -> None:
        owner = watch.edit.owner
        at_horizon = HorizonState("invalid", "too_expensive")
        if not watch.broken:
            at_horizon = self._state(watch)
        for number in due:
            del watch.windows[number]
            watch.answers[number] = at_horizon
        self._begun.pop(owner, None)
        if all(end < ts for _, end in watch.windows.values()):
            self._answered.add(owner)

    def _state(self, watch: _OpenEdit) -> HorizonState:
        owner = watch.edit.owner
        holders, reworked = tuple(self._holders(owner)), tuple(self._reworked.get(owner, ()))
        home, before = self._home(watch), watch.first_whole
        return HorizonState("scored", None, home, holders, reworked, before=before)

    def _home(self, watch: _OpenEdit) -> FileState | None:
        owner = watch.edit.owner
        parts = file.parts if (file := self._files.get(watch.home)) else []
        if not any(part.text for part in parts):
            # The agent may have moved it as a whole.
            parts = self._holders(owner) or parts
        if len(parts) > 1:
            parts = [part for part in parts if any(key[0] == owner for key in part.ranges)]
        return parts[0] if parts else None

    def _holders(self, owner: int) -> list[FileState]:
        files: Iterable[KnownFile] = self._holding[owner]
        if len(self._holding[owner]) > 1:
            files = (file for file in self._files.values() if file in self._holding[owner])
        return [state for file in files for state in file.parts if owner in state.pieces]
