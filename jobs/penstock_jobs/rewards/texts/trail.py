"""The edits of a chain: their order, their names, and what became of each."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import isabs, normpath
from sys import byteorder
from typing import Any, NamedTuple

from penstock_jobs.rewards.texts.changes import ink
from penstock_jobs.rewards.texts.provenance import FileState

SECOND = 1_000_000
UTF16 = "utf-16-le" if byteorder == "little" else "utf-16-be"

Row = dict[str, Any]


def code_units(text: str) -> str:
    if text.isascii() or max(text) <= "\uffff":
        return text
    return "".join(map(chr, array("H", text.encode(UTF16, "surrogatepass"))))


@dataclass(frozen=True)
class TrailTerms:
    windows_us: tuple[tuple[int, int], ...]
    move_min: int
    cells_max: int


class EditRange(NamedTuple):
    before: str
    after: str


class Sighting(NamedTuple):
    state: str
    reason: str | None = None
    home: FileState | None = None
    holders: tuple[FileState, ...] = ()
    #: Stretches of the edit's text that later edits of the session replaced: (start, length).
    reworked: tuple[tuple[int, int], ...] = ()
    #: The end of the window of a pending one, in microseconds since 1970.
    due_us: int | None = None


class Survivor(NamedTuple):
    """`written[origin : origin + length]` stands in the state's text at `at`."""

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
    #: Why nothing can be said about it at any horizon.
    problem: str | None = None
    after: str = ""
    #: The file, or what is known of it, right after the edit.
    made: FileState | None = None
    written: list[tuple[int, int]] = field(default_factory=list)
    #: Lines of `made` that are new as lines, whoever wrote their characters.
    reshaped: list[tuple[int, int]] = field(default_factory=list)
    #: What it replaced, where nobody knew the file around that.
    region: str | None = None
    #: The texts that an edit took away which wrote nothing, by number of the range.
    deleted: dict[int, str] = field(default_factory=dict)
    ranges: list[EditRange] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    #: They are found when somebody asks, by the states that hold its text.
    survivors: dict[tuple[FileState, ...], list[Survivor]] = field(default_factory=dict, repr=False)

    def put(self, made: FileState) -> None:
        self.made = made
        self.written = [
            (origin, origin + length)
            for origin, _, length in made.pieces.get(self.owner, ())
            if self.after[origin : origin + length].strip()
        ]

    def is_as_made(self, sighting: Sighting) -> bool:
        """Whether nothing at all has happened to its file; most looks find that."""
        return (
            sighting.home is self.made
            and sighting.holders == (self.made,)
            and not sighting.reworked
        )

    @cached_property
    def block_before(self) -> str:
        """From its first range to its last, the text as it was before the edit."""
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
        """Characters written, or taken away where nothing was written; without white space."""
        if self.deleted:
            return sum(len(ink(text)) for text in self.deleted.values())
        return sum(len(ink(self.after[start:end])) for start, end in self.written)

    @cached_property
    def units_written(self) -> int:
        """In UTF-16 code units, with white space: so the published forms count."""
        return sum(len(code_units(changed.after)) for changed in self.ranges)

    @cached_property
    def units_replaced(self) -> int:
        return sum(len(code_units(changed.before)) for changed in self.ranges)


def ranges_now(edit: TrackedEdit, sighting: Sighting) -> list[str]:
    """The text that each range of the edit has become; nothing, if its file is gone."""
    if sighting.home is None:
        return [""] * len(edit.ranges)
    text, places = sighting.home.text, sighting.home.ranges
    stretches = [places.get((edit.owner, n)) or (0, 0) for n in range(len(edit.ranges))]
    # Is all between the first range and the last as it was before the edit? Putting it back may
    # have changed text between the ranges; then nothing but this tells what became of which.
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
    """Rows as (ts, number of the kind, row), in one order whatever order they came in."""
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
        """The id that was sent, or the time; one that comes again is numbered."""
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
    """Each path → the first spelling of its file; empty where all are spelled alike. The project
    lies where most absolute paths are one of the relative ones."""
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
    # Of several with as many, the outermost: it holds the files of the others.
    return min(roots, key=lambda root: (-roots[root], len(root), root), default="")
