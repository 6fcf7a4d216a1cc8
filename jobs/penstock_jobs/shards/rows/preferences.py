"""Preferences: two answers to the same messages, one of them wanted.

docs/shards.md lists the kinds. An edit is corrected if others changed its text and left something
in its place. Reverting it as a whole is no correction, nor is a rewrite by the agent, nor is text
before or behind the edit. The chosen text is whole lines of the file as the user left it: a text
put together from stretches of both would be code that nobody wrote.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import msgspec
import pyarrow as pa
from rapidfuzz.distance import Postfix, Prefix

from penstock_jobs.rewards.bucket import ChainMember, EditParameters, Relations, as_bucket
from penstock_jobs.rewards.definition import all_rewards, columns_of
from penstock_jobs.rewards.texts.changes import CompareCost, TooExpensive, align, ink
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState
from penstock_jobs.rewards.texts.trail import TrackedEdit, ranges_now
from penstock_jobs.shards.conversation.conversation import (
    ChatMessage,
    Conversation,
    OpenAiMessage,
    is_cut_short,
    openai_message,
)
from penstock_jobs.shards.conversation.session_events import EventProblem, texts_within
from penstock_jobs.shards.rows.token_credit import EditMark, call_of, credited_calls, edit_marks

#: If a smaller share of the changed characters is left, the edit was taken back.
_LEFT_MIN = 0.2
#: Why an edit that the user changed is in no pair.
CorrectionRefusal = Literal["changed_edit_not_in_call", "changed_edit_not_at_lines"]


@dataclass(frozen=True)
class Correction:
    """An edit that the user changed, with its file right after it and as the user left it."""

    edit: EditMark
    owner: int
    made: FileState
    left: FileState
    #: From the first changed character to the last, in `made`.
    changed: tuple[int, int]

    def in_message(self, message: ChatMessage) -> ChatMessage | CorrectionRefusal:
        """Replace the edit's text, in the call that wrote it, by the lines that the user left."""
        calls = [*message.tool_calls]
        own = [at for at, call in enumerate(calls) if call.id == self.edit.call_id]
        for number in own or range(len(calls)):
            arguments = calls[number].arguments
            places = ((text, self._place_of(text)) for text in texts_of(arguments))
            text, at = next((place for place in places if place[1] is not None), ("", None))
            if at is None or (form := _only_form(text, arguments)) is None:
                continue
            if (left := self._lines_in_place(text, at)) is None:
                return "changed_edit_not_at_lines"
            escaped = form.isascii() and not text.isascii()
            arguments = arguments.replace(form, json.dumps(left, ensure_ascii=escaped))
            calls[number] = replace(calls[number], arguments=arguments)
            return replace(message, tool_calls=tuple(calls))
        return "changed_edit_not_in_call"

    @property
    def left_lines(self) -> str | None:
        """Return the whole lines in which the edit's places are now; None if a later edit of the
        agent or unknown text is in them."""
        text = self.left.text
        places = [place for key, place in self.left.ranges.items() if key[0] == self.owner]
        start = text.rfind("\n", 0, min(place[0] for place in places)) + 1
        end = max(place[1] for place in places)
        if text[end - 1 : end] != "\n":
            end += len(text[end:].partition("\n")[0])
        left = text[start:end].removesuffix("\n")
        later = any(run.owner > self.owner for run in self.left.cut(start, end))
        return None if later or "\0" in left else left

    def _place_of(self, text: str) -> int | None:
        """Find where in the file a text is that holds all changes."""
        start, end = self.changed
        body = text.removesuffix("\n")
        # A newline behind it belongs to its last line.
        at = self.made.text.find(body, max(end - len(body) - 1, 0), start + len(body))
        return at if body and at >= 0 else None

    def _lines_in_place(self, text: str, at: int) -> str | None:
        """Return the lines that the user left in place of a text; None if it is cut in a line.

        It may lack the indentation of its first line, as texts to be replaced often do."""
        body, made = text.removesuffix("\n"), self.made.text
        head = made[made.rfind("\n", 0, at) + 1 : at]
        end = at + len(body)
        if head.strip(" \t") or made[end : end + 1] not in ("", "\n"):
            return None
        first = made.count("\n", 0, at)
        left = self._lines_left(first, first + body.count("\n") + 1)
        if left is None or not left.startswith(head) or ink(left) in ("", ink(body)):
            return None
        return left.removeprefix(head) + text[len(body) :]

    def _lines_left(self, first: int, last: int) -> str | None:
        """Return what is between kept lines; None if a later edit of the agent is in it."""
        kept = self._kept_lines
        low = kept.get(first, kept.get(first - 1, -2) + 1)
        high = kept[last - 1] + 1 if last - 1 in kept else kept.get(last, -1)
        lines = _lines(self.left.text)
        start = sum(len(line) + 1 for line in lines[: max(low, 0)])
        left = "\n".join(lines[low:high])
        later = any(run.owner > self.owner for run in self.left.cut(start, start + len(left)))
        return None if low < 0 or low >= high or later or "\0" in left else left

    @cached_property
    def _kept_lines(self) -> dict[int, int]:
        """Map lines of the file to where they are now, with the ends of a whole file."""
        before, after = _lines(self.made.text), _lines(self.left.text)
        try:
            blocks = align(before, after, CompareCost(EditParameters().cells_max))
        except TooExpensive:
            return {}
        kept = {i + number: j + number for i, j, n in blocks for number in range(n)}
        whole = self.made.whole and self.left.whole
        return kept | ({-1: -1, len(before): len(after)} if whole else {})


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def texts_of(arguments: str) -> list[str]:
    """Return the texts in the arguments of a call, the longest first."""
    try:
        document = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError):
        return []
    return sorted(set(texts_within(document)), key=len, reverse=True)


def _only_form(text: str, arguments: str) -> str | None:
    """Find how the text is written in JSON, so that the rest is not encoded again."""
    forms = (json.dumps(text, ensure_ascii=ascii_only) for ascii_only in (True, False))
    return next((form for form in forms if arguments.count(form) == 1), None)


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
            mark = marks.get((session, edit.target_id))
            if mark is not None and (correction := correction_of(edit, mark)) is not None:
                found[session].append(correction)
    return dict(found)


def correction_of(edit: TrackedEdit, mark: EditMark) -> Correction | None:
    """Find what the user made of an edit; None if it was left, taken back or only reformatted."""
    at_horizon = edit.horizon_states[0] if edit.horizon_states else None
    if edit.problem or edit.made is None or at_horizon is None or at_horizon.home is None:
        return None
    if at_horizon.state != "scored" or at_horizon.reworked or edit.is_as_made(at_horizon):
        return None
    if ranges_now(edit, at_horizon) == [changed.before for changed in edit.ranges]:
        return None  # it was put back
    places, written, left_text = [], "", ""
    for number, changed in enumerate(edit.ranges):
        key = edit.owner, number
        made, now = edit.made.ranges.get(key), at_horizon.home.ranges.get(key)
        left = None if made is None or now is None else _left(edit, made, now, at_horizon.home)
        if made is None or left is None:
            return None
        if left != changed.after:
            written, left_text = written + changed.after, left_text + left
            head = Prefix.similarity(changed.after, left)
            tail = Postfix.similarity(changed.after[head:], left[head:])
            places += [made[0] + head, made[1] - tail]
    taken_back = len(ink(left_text)) < _LEFT_MIN * len(ink(written))
    if taken_back or ink(left_text) == ink(written):
        return None
    changed_place = min(places), max(places)
    return Correction(mark, edit.owner, edit.made, at_horizon.home, changed_place)


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


class Preference(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: Literal["edited", "regenerated"]
    #: The number of messages before it in the row.
    prompt: int
    chosen: list[OpenAiMessage]
    rejected: list[OpenAiMessage]
    #: The files as the user left them, which hold what differs in `chosen` as whole lines.
    files: list[str] = []

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
        #: Changed edits of trained calls that are in no pair.
        self.problems: list[EventProblem] = []
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
            message, files = shown[place], list[str]()
            for correction in corrections:
                corrected = correction.in_message(message)
                if isinstance(corrected, str):
                    mark = correction.edit
                    self.problems.append(EventProblem(corrected, mark.seq, None, mark.call_id))
                else:
                    message, files = corrected, [*files, correction.left.text]
            if files:
                sides = [openai_message(message)], [openai_message(shown[place])]
                yield Preference("edited", place, *sides, [*dict.fromkeys(files)])


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
