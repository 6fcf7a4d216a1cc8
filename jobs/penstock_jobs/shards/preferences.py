"""Preferences: of two answers to the same messages, the one that was wanted.

    edited        The user changed what an edit had written. Chosen is the answer as it would have
                  been with the text that the user left, rejected is the answer as it was.
    edited_text   The same where the model's answer does not hold the text, since another program
                  wrote it: both sides are the texts alone.
    regenerated   The user asked for the answer again, in the session or in a fork of it. Chosen is
                  the last, rejected each before it.

A row of a shard holds those of the calls that are trained in it, as JSON: how many of its messages
come before both answers, and the answers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from penstock_jobs.shards.chat_templates import openai_message
from penstock_jobs.shards.conversation import ChatMessage, Conversation, is_cut_short
from penstock_jobs.shards.corrections import Correction
from penstock_jobs.shards.token_credit import call_of

PreferenceKind = Literal["edited", "edited_text", "regenerated"]


class Preference(msgspec.Struct, frozen=True):
    kind: PreferenceKind
    #: So many messages of the row come before.
    prompt: int
    chosen: list[dict[str, Any]]
    rejected: list[dict[str, Any]]


@dataclass(frozen=True)
class PreferenceSources:
    """What preferences come from beside a session's own conversation, by session."""

    corrections: Mapping[str, Sequence[Correction]] = field(default_factory=dict)
    #: Of forks: what they were made from.
    origins: Mapping[str, Conversation] = field(default_factory=dict)


NO_SOURCES = PreferenceSources()


class PreferenceFinder:
    """Finds those of a session, row by row."""

    def __init__(
        self,
        conversation: Conversation,
        trained: Iterable[int],
        sources: PreferenceSources = NO_SOURCES,
    ) -> None:
        """`trained` are the numbers of the calls that are trained in any row of the session."""
        self._conversation = conversation
        self._told = conversation.messages
        self._trained = frozenset(trained)
        marks = (message.regeneration for message in self._told)
        self._regenerations = sorted({mark for mark in marks if mark is not None})
        self._corrections: defaultdict[int, list[Correction]] = defaultdict(list)
        self._origin = sources.origins.get(conversation.session_id)
        for correction in sources.corrections.get(conversation.session_id, ()):
            call = call_of(conversation, correction.call_id, correction.ts_us, correction.seq)
            self._corrections[call].append(correction)

    def of_row(self, shown: Sequence[ChatMessage], trained: Iterable[int]) -> str | None:
        """As JSON. `shown` are the row's messages, `trained` the numbers of its calls."""
        if not self._regenerations and not self._corrections and self._origin is None:
            return None
        own = frozenset(trained)
        places = {
            message.call: at
            for at, message in enumerate(shown)
            if message.call is not None and message.call in own
        }
        pairs = [
            *self._regenerated(places),
            *self._forked(places),
            *self._edited(shown, places),
        ]
        return msgspec.json.encode(pairs).decode() if pairs else None

    def _regenerated(self, places: Mapping[int, int]) -> Iterator[Preference]:
        """A try that is trained stands in the row of its own; one that is not, in that of the
        answer which took its place."""
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
        """The user went back in another session and let the model answer the same again, and did
        not go on from the answer there."""
        start, origin = self._conversation.start, self._origin
        if origin is None or start.task_id is not None or start.group_id is not None:
            return
        first = next((at for at, message in enumerate(self._told) if message.written), 0)
        before, theirs = self._told[:first], origin.messages
        place = places.get(self._told[first].call or 0) if first else None
        if place is None or any(_is_new(message) for message in before):
            return
        if list(map(openai_message, before)) != list(map(openai_message, theirs[:first])):
            return
        refused, wanted = _answer(theirs[first:]), _answer(self._told[first:])
        if len(refused) < len(theirs) - first:
            return  # somebody went on from it
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
                left, written = (
                    {"role": "assistant", "content": text}
                    for text in (correction.left, correction.written)
                )
                yield Preference("edited_text", place, [left], [written])


def _answer(told: Sequence[ChatMessage]) -> list[ChatMessage]:
    """All that was said first, before anybody asked for more."""
    answer: list[ChatMessage] = []
    for message in told:
        if message.role not in ("assistant", "tool") or message.regeneration is not None:
            break
        answer.append(message)
    return answer


def _is_new(message: ChatMessage) -> bool:
    """Whether the user said it in a fork for the first time."""
    return message.role == "user" and "copied" not in message.flags


def _is_cut_short(conversation: Conversation, side: Sequence[ChatMessage]) -> bool:
    """What was cut short is worse for another reason."""
    calls = [message.call for message in side if message.call is not None]
    return not calls or is_cut_short(conversation, calls[-1])


def _pair(
    place: int, wanted: Sequence[ChatMessage], refused: Sequence[ChatMessage]
) -> Iterator[Preference]:
    chosen, rejected = ([openai_message(message) for message in side] for side in (wanted, refused))
    if chosen != rejected:
        yield Preference("regenerated", place, chosen, rejected)


def _corrected(message: ChatMessage, correction: Correction) -> ChatMessage | None:
    """The message with the text that the user left, where it holds the text of the edit."""
    calls = []
    for call in message.tool_calls:
        arguments = correction.in_json(call.arguments)
        calls.append(call if arguments is None else replace(call, arguments=arguments))
    if calls != [*message.tool_calls]:
        return replace(message, tool_calls=tuple(calls))
    content = correction.in_text(message.content)
    return None if content is None else replace(message, content=content)
