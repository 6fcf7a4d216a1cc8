"""Preferences: two answers to the same messages, one of them wanted.

docs/shards.md lists the kinds. An edit is corrected if others changed its text and left something
in its place. Reverting it as a whole is no correction, nor is a rewrite by the agent, nor is text
before or behind the edit.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa
from rapidfuzz.distance import Postfix, Prefix

from penstock_jobs.rewards.bucket import ChainMember, EditParameters, Relations, as_bucket
from penstock_jobs.rewards.definition import all_rewards, columns_of
from penstock_jobs.rewards.texts.changes import ink
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState
from penstock_jobs.rewards.texts.trail import TrackedEdit, ranges_now
from penstock_jobs.shards.conversation.conversation import (
    ChatMessage,
    Conversation,
    OpenAiMessage,
    is_cut_short,
    openai_message,
)
from penstock_jobs.shards.conversation.session_events import texts_within
from penstock_jobs.shards.rows.token_credit import EditMark, call_of, credited_calls, edit_marks

#: If a smaller share of the changed characters is left, the edit was taken back.
_LEFT_MIN = 0.2


class CorrectedRange(NamedTuple):
    """A stretch of an edit's text that the user changed, and the text that they left."""

    start: int
    end: int
    left: str


@dataclass(frozen=True)
class Correction:
    edit: EditMark
    #: The new text of the edit: the whole file, or a region.
    after: str
    ranges: tuple[CorrectedRange, ...]

    @property
    def written(self) -> str:
        """Return lines from the first changed stretch to the last, as the agent wrote them."""
        start, end = self._lines
        return self.after[start:end]

    @property
    def left(self) -> str:
        """Return the same lines as the user left them."""
        return self._corrected(*self._lines)

    @property
    def _lines(self) -> tuple[int, int]:
        first, last = self.ranges[0].start, self.ranges[-1].end
        if not self.after.endswith("\n", 0, last):
            last = self.after.find("\n", last) + 1 or len(self.after)
        first = self.after.rfind("\n", 0, first) + 1
        # Pure insertions or removals need the lines around them, or one side is empty.
        while not (ink(self.after[first:last]) and ink(self._corrected(first, last))):
            if (first, last) == (0, len(self.after)):
                break
            first = self.after.rfind("\n", 0, max(first - 1, 0)) + 1
            last = self.after.find("\n", last) + 1 or len(self.after)
        return first, last

    def in_text(self, text: str) -> str | None:
        """Apply the correction to a text; None if the changed text is not in it."""
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
        """Apply the correction within JSON, without re-encoding the rest."""
        try:
            document = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return None
        for value in sorted(set(texts_within(document)), key=len, reverse=True):
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


def find_corrections(
    rows: pa.Table, tenant: str, as_of_us: int, *, horizon_s: int, chains: Mapping[str, str]
) -> dict[str, list[Correction]]:
    """Find corrections at the horizon by session. Observations of a whole chain count."""
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
                found[session].append(Correction(mark, edit.after, ranges))
    return dict(found)


def _corrected_ranges(edit: TrackedEdit) -> tuple[CorrectedRange, ...]:
    at_horizon = edit.horizon_states[0] if edit.horizon_states else None
    if edit.problem or edit.made is None or at_horizon is None or at_horizon.home is None:
        return ()
    if at_horizon.state != "scored" or at_horizon.reworked or edit.is_as_made(at_horizon):
        return ()
    if ranges_now(edit, at_horizon) == [changed.before for changed in edit.ranges]:
        return ()  # it was put back
    start = _start_of(edit, edit.made)
    ranges, written, left_text = [], "", ""
    for number, changed in enumerate(edit.ranges):
        key = edit.owner, number
        made, now = edit.made.ranges.get(key), at_horizon.home.ranges.get(key)
        left = None if made is None or now is None else _left(edit, made, now, at_horizon.home)
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
    """Find the start of the edit's text in the file."""
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
    """Return the text in place of a stretch; None if another edit wrote part of it."""
    runs = home.cut(*now)
    if any(run.owner > OTHERS and run.owner != edit.owner for run in runs):
        return None
    start, end = now
    own = [(number, run) for number, run in enumerate(runs) if run.owner == edit.owner]
    before = [run for run in edit.made.cut(*made) if run.owner == edit.owner] if edit.made else []
    if own and before:
        (first, head), (last, tail) = own[0], own[-1]
        # If its first character remains, text before it was inserted.
        if head.origin == before[0].origin:
            start += sum(run.length for run in runs[:first])
        if tail.origin + tail.length == before[-1].origin + before[-1].length:
            end -= sum(run.length for run in runs[last + 1 :])
    return home.text[start:end]


PreferenceKind = Literal["edited", "edited_text", "regenerated"]


class Preference(msgspec.Struct, frozen=True):
    kind: PreferenceKind
    #: The number of messages before it in the row.
    prompt: int
    chosen: list[OpenAiMessage]
    rejected: list[OpenAiMessage]

    def is_end_of(self, messages: Sequence[OpenAiMessage]) -> bool:
        """Whether the rejected answer is part of the row."""
        end = self.prompt + len(self.rejected)
        return messages[self.prompt : end] == self.rejected


class PreferenceFinder:
    """Finds the preferences of a session, row by row."""

    def __init__(
        self,
        conversation: Conversation,
        trained: Iterable[int],
        corrections: Sequence[Correction] = (),
        origin: Conversation | None = None,
    ) -> None:
        """`trained` are calls that any row of the session trains; `origin` is a fork's source."""
        self._conversation = conversation
        self._told = conversation.messages
        self._trained = frozenset(trained)
        marks = (message.regeneration for message in self._told)
        self._regenerations = sorted({mark for mark in marks if mark is not None})
        self._corrections: defaultdict[int, list[Correction]] = defaultdict(list)
        self._origin = origin
        calls = credited_calls(conversation) if corrections else ()
        for correction in corrections:
            self._corrections[call_of(calls, correction.edit)].append(correction)

    def of_row(self, shown: Sequence[ChatMessage], trained: Iterable[int]) -> str | None:
        """Encode preferences of a row with the messages `shown` and calls `trained`."""
        if not self._regenerations and not self._corrections and self._origin is None:
            return None
        own = frozenset(trained)
        places = {each.call: at for at, each in enumerate(shown) if each.call in own}
        pairs = [*self._regenerated(places), *self._forked(places), *self._edited(shown, places)]
        return msgspec.json.encode(pairs).decode() if pairs else None

    def _regenerated(self, places: Mapping[int, int]) -> Iterator[Preference]:
        """Yield regenerations. A pair is in the try's row if trained, else in the replacement's."""
        for regeneration in self._regenerations:
            rejected, chosen = regeneration
            place = places.get(rejected if rejected in self._trained else chosen)
            if place is None:
                continue
            before = [message for message in self._told if message.regeneration == regeneration]
            sides = self._answer(chosen), before
            if not any(_is_cut_short(self._conversation, side) for side in sides):
                yield from _pair(place, *sides)

    def _forked(self, places: Mapping[int, int]) -> Iterator[Preference]:
        """Yield a fork's answer against an answer that the user did not continue from."""
        start, origin = self._conversation.start, self._origin
        if origin is None or start.task_id is not None or start.group_id is not None:
            return
        first = next((at for at, message in enumerate(self._told) if message.written), 0)
        before, theirs = self._told[:first], origin.messages
        place = places.get(self._told[first].call or 0) if first else None
        asked = [message for message in before if message.role == "user"]
        if place is None or any("copied" not in message.flags for message in asked):
            return
        if list(map(openai_message, before)) != list(map(openai_message, theirs[:first])):
            return
        refused, wanted = _answer(theirs[first:]), _answer(self._told[first:])
        if len(refused) < len(theirs) - first:
            return  # the user continued from it
        if not _is_cut_short(origin, refused) and not _is_cut_short(self._conversation, wanted):
            yield from _pair(place, wanted, refused)

    def _answer(self, first: int) -> list[ChatMessage]:
        told = self._told
        start = next((at for at, message in enumerate(told) if message.call == first), len(told))
        return _answer(told[start:])

    def _edited(
        self, shown: Sequence[ChatMessage], places: Mapping[int, int]
    ) -> Iterator[Preference]:
        for call in sorted(self._corrections.keys() & places.keys()):
            corrections, place = self._corrections[call], places[call]
            message = corrected = shown[place]
            for correction in corrections:
                corrected = _corrected(corrected, correction) or corrected
            if corrected is not message:
                sides = [openai_message(corrected)], [openai_message(message)]
                yield Preference("edited", place, *sides)
                continue
            for correction in corrections:
                texts = correction.left, correction.written
                left, written = (OpenAiMessage("assistant", text) for text in texts)
                yield Preference("edited_text", place, [left], [written])


def _answer(told: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the first answer, before further input."""
    answer: list[ChatMessage] = []
    for message in told:
        if message.role not in ("assistant", "tool") or message.regeneration is not None:
            break
        answer.append(message)
    return answer


def _is_cut_short(conversation: Conversation, side: Sequence[ChatMessage]) -> bool:
    """Whether an answer was cut short, which makes it worse for another reason."""
    calls = [message.call for message in side if message.call is not None]
    return not calls or is_cut_short(conversation, calls[-1])


def _pair(
    place: int, wanted: Sequence[ChatMessage], refused: Sequence[ChatMessage]
) -> Iterator[Preference]:
    chosen, rejected = ([openai_message(message) for message in side] for side in (wanted, refused))
    if chosen != rejected:
        yield Preference("regenerated", place, chosen, rejected)


def _corrected(message: ChatMessage, correction: Correction) -> ChatMessage | None:
    """Apply a correction to a message, if it holds the edit's text."""
    calls = []
    for call in message.tool_calls:
        arguments = correction.in_json(call.arguments)
        calls.append(call if arguments is None else replace(call, arguments=arguments))
    if calls != [*message.tool_calls]:
        return replace(message, tool_calls=tuple(calls))
    content = correction.in_text(message.content)
    return None if content is None else replace(message, content=content)
