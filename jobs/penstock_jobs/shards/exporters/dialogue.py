"""The messages of a row, in the one form that exported columns of messages have."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from penstock_jobs.shards.export import ExportOutput

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


def _texts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, pa.string())


_FUNCTION = pa.struct(_texts("name", "arguments"))
_CALLS = pa.list_(pa.struct(_texts("id", "type") | {"function": _FUNCTION}))
_FIELDS = _texts("role", "content", "reasoning_content") | {"tool_calls": _CALLS}
_FIELDS |= _texts("tool_call_id", "name")
#: A message has all fields; those that do not apply are null.
MESSAGES = pa.list_(pa.struct(_FIELDS))
WEIGHTED_MESSAGES = pa.list_(pa.struct(_FIELDS | {"weight": pa.int8()}))
_decoder = msgspec.json.Decoder(list[DialogueMessage])


class DialogueSplit(NamedTuple):
    """What the model was asked, and all from its first trained answer on."""

    prompt: list[DialogueMessage]
    completion: list[DialogueMessage]


def read_dialogue(text: str) -> list[DialogueMessage] | DialogueRefusal:
    try:
        return _decoder.decode(text) or "no_messages"
    except msgspec.MsgspecError:
        return "unknown_message_form"


def read_split(text: str, *, all_trained: bool = True) -> DialogueSplit | DialogueRefusal:
    """With `all_trained` there must be no other answer in the completion."""
    messages = read_dialogue(text)
    if isinstance(messages, str):
        return messages
    first = next((at for at, message in enumerate(messages) if message.trained), None)
    if first is None:
        return "no_trained_answer"
    if first == 0:
        return "no_prompt"
    if all_trained and has_untrained(messages[first:]):
        return "untrained_answer"
    return DialogueSplit(messages[:first], messages[first:])


class DialoguePreference(msgspec.Struct, frozen=True):
    """Two answers to the same messages, of which one was wanted."""

    kind: str
    #: So many messages of the row come before.
    prompt: int
    chosen: list[DialogueMessage]
    rejected: list[DialogueMessage]

    def is_end_of(self, messages: Sequence[DialogueMessage]) -> bool:
        """Whether the rejected answer stands in the row itself."""
        end = self.prompt + len(self.rejected)
        return messages[self.prompt : end] == self.rejected


_preferences_decoder = msgspec.json.Decoder(list[DialoguePreference])


def read_preferences(text: str | None) -> list[DialoguePreference]:
    """Those that have messages before them."""
    known = _preferences_decoder.decode(text) if text else []
    return [preference for preference in known if preference.prompt]


def read_dialogues(
    rows: pa.Table, output: ExportOutput
) -> Iterator[tuple[dict[str, Any], list[DialogueMessage]]]:
    """Each row that has messages, with them; the others are left out and counted."""
    for row in rows.to_pylist():
        messages = read_dialogue(row["messages"])
        if isinstance(messages, str):
            output.leave_out(messages)
        else:
            yield row, messages


def has_untrained(messages: Sequence[DialogueMessage]) -> bool:
    """Whether the model said something in it that is not to be trained."""
    return any(message.role == "assistant" and not message.trained for message in messages)


def stripped(messages: Sequence[DialogueMessage]) -> list[dict[str, Any]]:
    """Without the fields that a message does not have, and without weights."""
    return [
        {name: value for name, value in message.items() if value is not None and name != "weight"}
        for message in plain(messages)
    ]


def plain(messages: Sequence[DialogueMessage]) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = msgspec.to_builtins(messages)
    return values
