"""Edits whose horizons are still open, and what answers them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock_jobs.rewards.texts.changes import Change
from penstock_jobs.rewards.texts.files import KnownFile, State, between
from penstock_jobs.rewards.texts.provenance import OTHERS, cut
from penstock_jobs.rewards.texts.trail import Seen, Terms, TrackedEdit


@dataclass(eq=False)
class _Watch:
    """An edit whose horizons are still open."""

    edit: TrackedEdit
    #: Number of the horizon → (begin, end).
    windows: dict[int, tuple[int, int]]
    #: What its file is called now.
    home: str
    found: dict[int, Seen] = field(default_factory=dict)
    notes: dict[int, Seen] = field(default_factory=dict)
    #: Where its text was seen last.
    paths: set[str] = field(default_factory=set)
    broken: bool = False


class Watches:
    """`files` is what is known of the session's files, by path, and changes under way."""

    def __init__(self, files: Mapping[str, KnownFile], terms: Terms) -> None:
        self._files = files
        self._terms = terms
        self._open: list[_Watch] = []
        self._done: list[_Watch] = []
        self._reworked: dict[int, list[tuple[int, int]]] = {}
        #: The owners that are watched.
        self.live: set[int] = set()

    def watch(self, edit: TrackedEdit, state: State) -> None:
        """From now on; `state` is the file right after the edit, and answers horizon 0."""
        windows = {
            number: (edit.ts_us + begin, edit.ts_us + end)
            for number, (begin, end) in enumerate(self._terms.windows_us)
        }
        watch = _Watch(edit, windows, edit.path, paths={edit.path})
        for number, (begin, _) in enumerate(self._terms.windows_us):
            if begin == 0:
                del windows[number]
                watch.found[number] = Seen("scored", None, state, (state,))
        self._open.append(watch)
        self.live.add(edit.owner)

    def renamed(self, old: str, new: str) -> None:
        """The file has another name from now on, also for edits of which nothing is left in it."""
        for watch in self._open:
            if watch.home == old:
                watch.home = new
            if old in watch.paths:
                watch.paths = watch.paths - {old} | {new}

    def rework(self, state: State, change: Change) -> None:
        """An edit of the session takes away what earlier ones wrote."""
        blocks = sorted((block.i, block.n) for block in change.kept + change.moved)
        for start, end in between(blocks, len(state.text)):
            for length, owner, origin in cut(state.runs, state.starts, start, end):
                if owner != OTHERS:
                    self._reworked.setdefault(owner, []).append((origin, length))

    def lose(self, state: State) -> None:
        """From here on nothing can be said about edits with text in this state."""
        for watch in self._open:
            if watch.edit.owner in state.pieces:
                watch.broken = True

    def note(self, ts: int, path: str | None, seen: Seen) -> None:
        """Why a look said nothing about a file."""
        for watch in self._open:
            if path in watch.paths:
                for number, (begin, end) in watch.windows.items():
                    if begin <= ts <= end:
                        watch.notes.setdefault(number, seen)

    def sight(self, ts: int, path: str) -> None:
        """The file was seen as it is known now."""
        self._close(ts)
        for watch in self._open:
            self._sight(watch, ts, path)

    def sight_region(self, ts: int, path: str, state: State, region: tuple[int, int]) -> None:
        """A region of the file was seen: enough for an edit that has all of its text there."""
        self._close(ts)
        for watch in self._open:
            due = _due(watch, ts)
            if not due or path not in watch.paths:
                continue
            holders = self._holders(watch.edit.owner)
            pieces = state.pieces.get(watch.edit.owner, [])
            whole = state.whole and region == (0, len(state.text))
            inside = (
                pieces
                and pieces[0].at >= region[0]
                and pieces[-1].at + pieces[-1].length <= region[1]
            )
            if whole or (inside and holders == {path: [state]}):
                self._answer(watch, due, holders)

    def conclude(
        self, edits: Sequence[TrackedEdit], as_of_us: int, ended_us: int | None, last_look_us: int
    ) -> None:
        """Put down for each edit what it had become at each horizon, or why nobody knows."""
        watches = {watch.edit.owner: watch for watch in self._done + self._open}
        for edit in edits:
            watch = watches.get(edit.owner)
            for number, (begin, end) in enumerate(self._terms.windows_us):
                if edit.problem:
                    seen = Seen("invalid", edit.problem)
                elif watch is None:
                    seen = Seen("pending")
                elif number in watch.found:
                    seen = watch.found[number]
                elif edit.ts_us + end > as_of_us:
                    seen = Seen("pending")
                elif watch.broken:
                    seen = Seen("invalid", "too_expensive")
                elif number in watch.notes:
                    seen = watch.notes[number]
                elif (
                    ended_us is not None
                    and ended_us <= edit.ts_us + end
                    and last_look_us < edit.ts_us + begin
                ):
                    seen = Seen("censored", "workspace_gone")
                else:
                    seen = Seen("censored", "unobserved")
                edit.seen.append(seen)

    def _close(self, ts: int) -> None:
        """Edits whose last horizon has passed are watched no longer."""
        still = []
        for watch in self._open:
            if any(end >= ts for _, end in watch.windows.values()):
                still.append(watch)
            else:
                self._done.append(watch)
                self.live.discard(watch.edit.owner)
        self._open = still

    def _sight(self, watch: _Watch, ts: int, path: str) -> None:
        due = _due(watch, ts)
        if not due:
            return
        holders = self._holders(watch.edit.owner)
        if holders:
            watch.paths = set(holders)
        if path in watch.paths:
            self._answer(watch, due, holders)
        elif path == watch.home:
            for number in due:
                watch.notes.setdefault(number, Seen("censored", "path_lost"))

    def _answer(self, watch: _Watch, due: Iterable[int], holders: dict[str, list[State]]) -> None:
        home = self._files.get(watch.home)
        seen = Seen(
            "scored",
            None,
            home.parts[0]
            if home and len(home.parts) == 1
            else _with_ranges_of(home, watch.edit.owner),
            tuple(state for states in holders.values() for state in states),
            tuple(self._reworked.get(watch.edit.owner, ())),
        )
        if watch.broken:
            seen = Seen("invalid", "too_expensive")
        for number in due:
            del watch.windows[number]
            watch.found[number] = seen

    def _holders(self, owner: int) -> dict[str, list[State]]:
        holders = {}
        for path, file in self._files.items():
            states = [state for state in file.parts if owner in state.pieces]
            if states:
                holders[path] = states
        return holders


def _due(watch: _Watch, ts: int) -> list[int]:
    return [number for number, (begin, end) in watch.windows.items() if begin <= ts <= end]


def _with_ranges_of(file: KnownFile | None, owner: int) -> State | None:
    if file is None or len(file.parts) == 1:
        return file.parts[0] if file else None
    for state in file.parts:
        if any(key[0] == owner for key in state.ranges):
            return state
    return None
