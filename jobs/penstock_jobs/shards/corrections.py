"""Corrections: what users made of the text of edits, so long after them.

An edit is corrected where somebody else changed its text and left something in its place. What was
taken back as a whole, put back to what was there before, or written anew by the agent is no
correction. Text that was added before or behind what the edit wrote is not of it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from rapidfuzz.distance import Postfix, Prefix

from penstock_jobs.rewards.bucket import EditParameters, as_bucket
from penstock_jobs.rewards.lives import ChainMember, Relations
from penstock_jobs.rewards.reward import all_rewards, columns_of
from penstock_jobs.rewards.texts.changes import ink
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState
from penstock_jobs.rewards.texts.trail import TrackedEdit, ranges_now
from penstock_jobs.shards.token_credit import edit_marks

#: Where less is left of the changed text, by characters, it was taken back.
_LEFT_MIN = 0.2


class CorrectedRange(NamedTuple):
    """A stretch of an edit's text that the user changed, and what they left there."""

    start: int
    end: int
    left: str


@dataclass(frozen=True)
class Correction:
    #: Of the edit: the call that it names, and when it was made.
    call_id: str | None
    ts_us: int
    seq: int | None
    #: What it put into the file: all of the file, or a region of it.
    after: str
    #: In order. They do not overlap.
    ranges: tuple[CorrectedRange, ...]

    @property
    def written(self) -> str:
        """The lines from the first changed stretch to the last, as the agent wrote them."""
        start, end = self._lines
        return self.after[start:end]

    @property
    def left(self) -> str:
        """The same, as the user left it."""
        return self._corrected(*self._lines)

    @property
    def _lines(self) -> tuple[int, int]:
        first, last = self.ranges[0].start, self.ranges[-1].end
        if not self.after.endswith("\n", 0, last):
            last = self.after.find("\n", last) + 1 or len(self.after)
        first = self.after.rfind("\n", 0, first) + 1
        # Where lines were only put in or taken out, one side is no text without those around them.
        while not (ink(self.after[first:last]) and ink(self._corrected(first, last))):
            if (first, last) == (0, len(self.after)):
                break
            first = self.after.rfind("\n", 0, max(first - 1, 0)) + 1
            last = self.after.find("\n", last) + 1 or len(self.after)
        return first, last

    def in_text(self, text: str) -> str | None:
        """The text with what the user left. None, where it does not hold what was changed."""
        if text and text.count(self.after) == 1:
            return text.replace(self.after, self._corrected(0, len(self.after)))
        if not text or self.after.count(text) != 1:
            return None
        start = self.after.index(text)
        end = start + len(text)
        if self.ranges[0].start < start or self.ranges[-1].end > end:
            return None
        return self._corrected(start, end)

    def in_json(self, text: str) -> str | None:
        """The same for the texts within JSON, which stays as it was written around them."""
        try:
            document = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return None
        for value in sorted(set(_texts(document)), key=len, reverse=True):
            corrected = self.in_text(value)
            if corrected is None:
                continue
            for ascii_only in (False, True):
                form = json.dumps(value, ensure_ascii=ascii_only)
                if text.count(form) == 1:
                    return text.replace(form, json.dumps(corrected, ensure_ascii=ascii_only))
        return None

    def _corrected(self, start: int, end: int) -> str:
        pieces, at = [], start
        for stretch in self.ranges:
            pieces += [self.after[at : stretch.start], stretch.left]
            at = stretch.end
        return "".join([*pieces, self.after[at:end]])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def find_corrections(
    rows: pa.Table, tenant: str, as_of_us: int, *, horizon_s: int, chains: Mapping[str, str]
) -> dict[str, list[Correction]]:
    """By session, of whole sessions of rows of segments: what had become of edits at the horizon.
    Those that nobody looked at by then are in none. `chains` are by session: what the user did to
    an edit of a parent is seen in its child."""
    relations = Relations(chains={name: ChainMember(chain) for name, chain in chains.items()})
    columns = columns_of([all_rewards()["edit_persistence"]])
    bucket = as_bucket(rows, tenant, as_of_us, columns, relations)
    parameters = EditParameters(horizons_s=(horizon_s,))
    marks = {
        (session, mark.name): mark for session, own in edit_marks(rows).items() for mark in own
    }
    found: defaultdict[str, list[Correction]] = defaultdict(list)
    for session, trail in bucket.trails(parameters).items():
        for edit in trail:
            ranges = _corrected_ranges(edit)
            mark = marks.get((session, edit.target_id))
            if ranges and mark is not None:
                made = mark.call_id, mark.ts_us, mark.seq
                found[session].append(Correction(*made, edit.after, ranges))
    return dict(found)


def _corrected_ranges(edit: TrackedEdit) -> tuple[CorrectedRange, ...]:
    sighting = edit.sightings[0] if edit.sightings else None
    if edit.problem or edit.made is None or sighting is None or sighting.home is None:
        return ()
    if sighting.state != "scored" or sighting.reworked or edit.is_as_made(sighting):
        return ()
    if ranges_now(edit, sighting) == [changed.before for changed in edit.ranges]:
        return ()  # it was put back
    start = _start_of(edit, edit.made)
    ranges, written, left_text = [], "", ""
    for number, changed in enumerate(edit.ranges):
        key = edit.owner, number
        made, now = edit.made.ranges.get(key), sighting.home.ranges.get(key)
        left = None if made is None or now is None else _left(edit, made, now, sighting.home)
        if start is None or made is None or left is None:
            return ()
        if left != changed.after:
            written, left_text = written + changed.after, left_text + left
            head = Prefix.similarity(changed.after, left)
            tail = Postfix.similarity(changed.after[head:], left[head:])
            place = made[0] - start + head, made[1] - start - tail
            ranges.append(CorrectedRange(*place, left[head : len(left) - tail]))
    taken_back = len(ink(left_text)) < _LEFT_MIN * len(ink(written))
    return () if taken_back or ink(left_text) == ink(written) else tuple(ranges)


def _start_of(edit: TrackedEdit, made: FileState) -> int | None:
    """Where in the file the text of the edit begins."""
    places = [
        made.ranges[edit.owner, n]
        for n in range(len(edit.ranges))
        if (edit.owner, n) in made.ranges
    ]
    if not places:
        return None
    first, last = min(places)[0], max(end for _, end in places)
    start = made.text.find(edit.after, max(last - len(edit.after), 0), first + len(edit.after))
    return None if start < 0 else start


def _left(
    edit: TrackedEdit, made: tuple[int, int], now: tuple[int, int], home: FileState
) -> str | None:
    """What stands in the place of a stretch; None, where another edit wrote some of it."""
    runs = home.cut(*now)
    if any(run.owner not in (OTHERS, edit.owner) for run in runs):
        return None
    start, end = now
    own = [(number, run) for number, run in enumerate(runs) if run.owner == edit.owner]
    before = [run for run in edit.made.cut(*made) if run.owner == edit.owner] if edit.made else []
    if own and before:
        (first, head), (last, tail) = own[0], own[-1]
        # Where its first character still stands, what is before that was put there.
        if head.origin == before[0].origin:
            start += sum(run.length for run in runs[:first])
        if tail.origin + tail.length == before[-1].origin + before[-1].length:
            end -= sum(run.length for run in runs[last + 1 :])
    return home.text[start:end]
