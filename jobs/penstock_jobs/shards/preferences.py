"""Preferences: of two answers to the same messages, the one that was wanted.

    edited        The user changed what an edit had written. Chosen is the answer as it would have
                  been with the text that the user left, rejected is the answer as it was.
    edited_text   The same where the model's answer does not hold the text, since another program
                  wrote it: both sides are the texts alone.
    regenerated   The user asked for the answer again. Chosen is the last, rejected each before it.

A row of a shard holds those of the calls that are trained in it, as JSON: how many of its messages
come before both answers, and the answers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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


class PreferenceFinder:
    """Finds those of a session, row by row."""

    def __init__(
        self,
        conversation: Conversation,
        trained: Iterable[int],
        corrections: Sequence[Correction] = (),
    ) -> None:
        """`trained` are the numbers of the calls that are trained in any row of the session."""
        self._conversation = conversation
        self._told = conversation.messages
        self._trained = frozenset(trained)
        marks = (message.regeneration for message in self._told)
        self._regenerations = sorted({mark for mark in marks if mark is not None})
        self._corrections: defaultdict[int, list[Correction]] = defaultdict(list)
        for correction in corrections:
            call = call_of(conversation, correction.call_id, correction.ts_us, correction.seq)
            self._corrections[call].append(correction)

    def of_row(self, shown: Sequence[ChatMessage], trained: Iterable[int]) -> str | None:
        """As JSON. `shown` are the row's messages, `trained` the numbers of its calls."""
        if not self._regenerations and not self._corrections:
            return None
        own = frozenset(trained)
        places = {
            message.call: at
            for at, message in enumerate(shown)
            if message.call is not None and message.call in own
        }
        pairs = [*self._regenerated(places), *self._edited(shown, places)]
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
            if any(map(self._is_cut_short, sides)):
                continue
            wanted, refused = ([openai_message(message) for message in side] for side in sides)
            if wanted != refused:
                yield Preference("regenerated", place, wanted, refused)

    def _answer(self, first: int) -> list[ChatMessage]:
        """All that was said from a call on, before anybody asked for more."""
        told = self._told
        start = next((at for at, message in enumerate(told) if message.call == first), len(told))
        answer: list[ChatMessage] = []
        for message in told[start:]:
            if message.role not in ("assistant", "tool") or message.regeneration is not None:
                break
            answer.append(message)
        return answer

    def _is_cut_short(self, side: Sequence[ChatMessage]) -> bool:
        """What was cut short is worse for another reason."""
        calls = [message.call for message in side if message.call is not None]
        return not calls or is_cut_short(self._conversation, calls[-1])

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
