"""Edits of a chain: their order, their names, and their states at the horizons."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import isabs, normpath
from sys import byteorder
from typing import Any, NamedTuple

import msgspec

from penstock_jobs.rewards.rows import State
from penstock_jobs.rewards.texts.changes import ink
from penstock_jobs.rewards.texts.places import Place
from penstock_jobs.rewards.texts.provenance import FileState

SECOND = 1_000_000
UTF16 = "utf-16-le" if byteorder == "little" else "utf-16-be"

Row = dict[str, Any]


def code_units(text: str) -> str:
    if text.isascii() or max(text) <= "\uffff":
        return text
    return "".join(map(chr, array("H", text.encode(UTF16, "surrogatepass"))))


class TrailTerms(msgspec.Struct, frozen=True):
    windows_us: tuple[tuple[int, int], ...]
    move_min: int
    cells_max: int


class RequestSpan(NamedTuple):
    """The times of the request that an edit belongs to, in microseconds since 1970."""

    #: The last edit of the request.
    last_us: int
    #: When the next request began.
    ended_us: int | None = None
    #: When the user praised the work.
    praised_us: tuple[int, ...] = ()


#: A line or a part of one: begin, end, characters without white space, weight.
WeighedLine = tuple[int, int, int, float]


class EditRange(NamedTuple):
    before: str
    after: str


class HorizonState(NamedTuple):
    """An edit at a horizon: its file (`home`) and all states that hold its text."""

    state: State
    reason: str | None = None
    home: FileState | None = None
    holders: tuple[FileState, ...] = ()
    #: Stretches of the edit's text that later edits of the session replaced: (start, length).
    reworked: tuple[tuple[int, int], ...] = ()
    #: The end of a pending window, in microseconds since 1970.
    due_us: int | None = None
    #: The file when it was first known as a whole, from the edit on and before this state.
    before: FileState | None = None


class Survivor(NamedTuple):
    """Surviving text: `written[origin : origin + length]` is at `at` in the state's text."""

    origin: int
    state: FileState
    at: int
    length: int


@dataclass(eq=False)
class TrackedEdit:
    owner: int
    session: str
    target_id: str
    path: str
    ts_us: int
    turn: int
    checkpoint: str | None
    request: RequestSpan | None = None
    #: Why its state is unknown at all horizons.
    problem: str | None = None
    after: str = ""
    place: Place = "code"
    #: What is lost of text that the agent declared to be generated weighs as code.
    place_of_loss: Place = "code"
    #: The known file right after the edit.
    made: FileState | None = None
    written: list[tuple[int, int]] = field(default_factory=list)
    #: Lines of `made` that are new as lines, whoever wrote their characters.
    reshaped: list[tuple[int, int]] = field(default_factory=list)
    #: The replaced text, if the file around it was unknown.
    region: str | None = None
    #: Removed texts of an edit that wrote nothing, by number of the range.
    deleted: dict[int, str] = field(default_factory=dict)
    ranges: list[EditRange] = field(default_factory=list)
    horizon_states: list[HorizonState] = field(default_factory=list)
    #: The same when its request ended, at most the horizon after the request's last edit.
    request_states: list[HorizonState] = field(default_factory=list)
    #: What was known of it when the user first praised the work.
    praised: HorizonState | None = None
    #: Surviving text by the states that hold it, computed on demand.
    survivors: dict[tuple[FileState, ...], list[Survivor]] = field(default_factory=dict, repr=False)
    #: Written lines by the weight of lines of comments, computed on demand.
    lines: dict[float, list[WeighedLine]] = field(default_factory=dict, repr=False)

    def put(self, made: FileState) -> None:
        self.made = made
        self.written = [
            (origin, origin + length)
            for origin, _, length in made.pieces.get(self.owner, ())
            if self.after[origin : origin + length].strip()
        ]

    def is_as_made(self, at_horizon: HorizonState) -> bool:
        """Whether nothing has happened to its file, as in most observations."""
        return (
            at_horizon.home is self.made
            and at_horizon.holders == (self.made,)
            and not at_horizon.reworked
        )

    @cached_property
    def block_before(self) -> str:
        """Return the text before the edit, from its first range to its last."""
        if self.made is None:
            return ""
        places = self.made.ranges
        placed = sorted(
            (places[self.owner, number], changed.before)
            for number, changed in enumerate(self.ranges)
            if (self.owner, number) in places
        )
        block, last = "", placed[0][0][0] if placed else 0
        for (start, end), before in placed:
            block += self.made.text[last:start] + before
            last = end
        return block

    @cached_property
    def ink_size(self) -> int:
        """Count written characters, or removed ones if none were written; without white space."""
        if self.deleted:
            return sum(len(ink(text)) for text in self.deleted.values())
        return sum(len(ink(self.after[start:end])) for start, end in self.written)

    @cached_property
    def brought(self) -> int:
        """Count what others had written of the text where the edit was made."""
        if self.made is None or self.ink_size == sum(len(ink(each.after)) for each in self.ranges):
            return 0
        places = ((owner, place) for (owner, _), place in self.made.ranges.items())
        return sum(self.made.count_others(*place) for owner, place in places if owner == self.owner)

    @cached_property
    def units_written(self) -> int:
        """Count written UTF-16 code units with white space, as the published forms do."""
        return sum(len(code_units(changed.after)) for changed in self.ranges)

    @cached_property
    def units_replaced(self) -> int:
        return sum(len(code_units(changed.before)) for changed in self.ranges)


def ranges_now(edit: TrackedEdit, at_horizon: HorizonState) -> list[str]:
    """Return the current text of each range; empty if the file is gone."""
    if at_horizon.home is None:
        return [""] * len(edit.ranges)
    text, places = at_horizon.home.text, at_horizon.home.ranges
    stretches = [places.get((edit.owner, n)) or (0, 0) for n in range(len(edit.ranges))]
    # If all between the first and last range is as before the edit, the edit was reverted as a
    # whole, even if text between the ranges changed.
    if len(stretches) > 1 and edit.block_before:
        start, end = min(start for start, _ in stretches), max(end for _, end in stretches)
        if end - start == len(edit.block_before) and text.startswith(edit.block_before, start):
            return [changed.before for changed in edit.ranges]
    return [text[start:end] for start, end in stretches]


#: An event without a number comes after those that have one, at the same moment.
_SEQ_LAST = 2**63
_TIES = (
    "event_id", "path", "edit_id", "text", "after", "before", "deleted", "branch_changed",
    "payload",
)  # fmt: skip


def in_order(*kinds: Iterable[Row]) -> list[tuple[int, int, Row]]:
    """Return rows as (ts, number of the kind, row), in an order independent of the input's."""
    events: dict[tuple[int, str, int, int], list[Row]] = {}
    for kind, rows in enumerate(kinds):
        for row in rows:
            seq = row["seq"]
            session = row.get("session_id", "")
            place = (row["ts"], session, _SEQ_LAST if seq is None else seq, kind)
            events.setdefault(place, []).append(row)
    return [(place[0], place[3], row) for place in sorted(events) for row in _untied(events[place])]


def _untied(rows: list[Row]) -> list[Row]:
    if len(rows) == 1:
        return rows
    ties = {tuple(str(row.get(column) or "") for column in _TIES): row for row in rows}
    return [ties[tie] for tie in sorted(ties)]


class EditNames:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def of(self, edit: Row) -> str:
        """Name an edit by its id or time. A repeated name gets a number."""
        seq = edit["seq"]
        name = edit["edit_id"] or edit["event_id"]
        name = name or f"{edit['ts']}:{'' if seq is None else seq}"
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def named(edits: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    names = EditNames()
    for _, _, edit in in_order(edits):
        yield names.of(edit), edit


#: Without these a path is relative and has one spelling.
_ODD = re.compile(r"^[/.]|//|/\.|/$|^[A-Za-z]:[\\/]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def file_names(sent: Iterable[str]) -> Mapping[str, str]:
    """Map paths to the first spelling of their file; empty if all are spelled alike.

    The project's root is where most absolute paths end with a relative one."""
    paths = list(dict.fromkeys(sent))
    if not any(map(_ODD.search, paths)):
        return {}
    plain = {path: _plain(path) for path in paths}
    root = _root(set(plain.values()))
    names: dict[str, str] = {}
    return {path: names.setdefault(plain[path].removeprefix(root), path) for path in paths}


def _plain(path: str) -> str:
    if _DRIVE.match(path):
        path = "/" + path.replace("\\", "/")
    plain = normpath(path) if path else ""
    return plain[1:] if plain.startswith("//") else plain


def _root(paths: Iterable[str]) -> str:
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    absolute = []
    for path in paths:
        if isabs(path):
            absolute.append(path)
        else:
            by_name[path.rpartition("/")[2]].append(path)
    roots = Counter(
        path.removesuffix(relative)
        for path in absolute
        for relative in by_name.get(path.rpartition("/")[2], ())
        if path.endswith(f"/{relative}")
    )
    # Among equal counts the outermost, which holds the files of the others.
    return min(roots, key=lambda root: (-roots[root], len(root), root), default="")
