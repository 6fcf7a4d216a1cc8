"""The messages of a row, in the one form that exported columns of messages have."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from penstock_jobs.shards.conversation import OpenAiMessage
from penstock_jobs.shards.export import ExportOutput
from penstock_jobs.shards.preferences import Preference

DialogueRefusal = Literal[
    "no_messages", "unknown_message_form", "no_trained_answer", "no_prompt", "untrained_answer"
]


def _texts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, pa.string())


_FUNCTION = pa.struct(_texts("name", "arguments"))
_CALLS = pa.list_(pa.struct(_texts("id", "type") | {"function": _FUNCTION}))
_FIELDS = _texts("role", "content", "reasoning_content") | {"tool_calls": _CALLS}
_FIELDS |= _texts("tool_call_id", "name")
#: A message has all fields; those that do not apply are null.
MESSAGES = pa.list_(pa.struct(_FIELDS))
WEIGHTED_MESSAGES = pa.list_(pa.struct(_FIELDS | {"weight": pa.int8()}))
_decoder = msgspec.json.Decoder(list[OpenAiMessage])


class DialogueSplit(NamedTuple):
    """What the model was asked, and all from its first trained answer on."""

    prompt: list[OpenAiMessage]
    completion: list[OpenAiMessage]


def read_dialogue(text: str) -> list[OpenAiMessage] | DialogueRefusal:
    try:
        return _decoder.decode(text) or "no_messages"
    except msgspec.MsgspecError:
        return "unknown_message_form"


def read_split(text: str, *, all_trained: bool = True) -> DialogueSplit | DialogueRefusal:
    """With `all_trained` the completion may have no other answer."""
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


_preferences_decoder = msgspec.json.Decoder(list[Preference])


def read_preferences(text: str | None) -> list[Preference]:
    """Read those that have messages before them."""
    known = _preferences_decoder.decode(text) if text else []
    return [preference for preference in known if preference.prompt]


def read_dialogues(
    rows: pa.Table, output: ExportOutput
) -> Iterator[tuple[dict[str, Any], list[OpenAiMessage]]]:
    """Give each row that has messages, with them; count the others."""
    for row in rows.to_pylist():
        messages = read_dialogue(row["messages"])
        if isinstance(messages, str):
            output.leave_out(messages)
        else:
            yield row, messages


def has_untrained(messages: Sequence[OpenAiMessage]) -> bool:
    """Whether the model said something in it that is not to be trained."""
    return any(message.role == "assistant" and not message.trained for message in messages)


def stripped(messages: Sequence[OpenAiMessage]) -> list[dict[str, Any]]:
    """Without weights."""
    return plain([msgspec.structs.replace(message, weight=None) for message in messages])


def plain(messages: Sequence[OpenAiMessage]) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = msgspec.to_builtins(messages)
    return values
