"""The messages of a row, in the one form that exported columns of messages have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa

DialogueRefusal = Literal[
    "no_messages", "unknown_message_form", "no_trained_answer", "no_prompt", "untrained_answer"
]


class CalledFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    #: As the model wrote them, broken or not.
    arguments: str


class DialogueCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    type: str
    function: CalledFunction


class DialogueMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DialogueCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    weight: int | None = None

    @property
    def trained(self) -> bool:
        return self.role == "assistant" and self.weight != 0


def _text(name: str) -> pa.Field:
    return pa.field(name, pa.string())


_CALL = pa.struct(
    [
        _text("id"),
        _text("type"),
        pa.field("function", pa.struct([_text("name"), _text("arguments")])),
    ]
)
_FIELDS = [
    _text("role"),
    _text("content"),
    _text("reasoning_content"),
    pa.field("tool_calls", pa.list_(_CALL)),
    _text("tool_call_id"),
    _text("name"),
]
#: A message has all fields; those that do not apply are null.
MESSAGES = pa.list_(pa.struct(_FIELDS))
WEIGHTED_MESSAGES = pa.list_(pa.struct([*_FIELDS, pa.field("weight", pa.int8())]))

_decoder = msgspec.json.Decoder(list[DialogueMessage])


@dataclass(frozen=True)
class Dialogue:
    messages: list[DialogueMessage]

    def split(self, *, all_trained: bool = True) -> "DialogueSplit | DialogueRefusal":
        """What the model was asked, and all from its first trained answer on. With `all_trained`
        there must be no other answer in it."""
        first = next((at for at, one in enumerate(self.messages) if one.trained), None)
        if first is None:
            return "no_trained_answer"
        if first == 0:
            return "no_prompt"
        completion = self.messages[first:]
        if all_trained and has_untrained(completion):
            return "untrained_answer"
        return DialogueSplit(self.messages[:first], completion)


@dataclass(frozen=True)
class DialogueSplit:
    prompt: list[DialogueMessage]
    completion: list[DialogueMessage]


def read_dialogue(text: str) -> Dialogue | DialogueRefusal:
    try:
        messages = _decoder.decode(text)
    except msgspec.MsgspecError:
        return "unknown_message_form"
    return Dialogue(messages) if messages else "no_messages"


def read_split(text: str) -> DialogueSplit | DialogueRefusal:
    dialogue = read_dialogue(text)
    return dialogue.split() if isinstance(dialogue, Dialogue) else dialogue


def has_untrained(messages: Sequence[DialogueMessage]) -> bool:
    """Whether the model said something in it that is not to be trained."""
    return any(one.role == "assistant" and not one.trained for one in messages)


def plain(messages: Sequence[DialogueMessage]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.to_builtins(messages)
    return found
