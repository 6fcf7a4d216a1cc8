"""What was said to a model: the requests of all four endpoints in one form."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from xxhash import xxh3_64_intdigest

from penstock.proxy.target import Endpoint

Role = Literal["system", "user", "assistant", "tool"]

_encoder = msgspec.json.Encoder(order="deterministic")
_TEXTS = ("text", "input_text", "output_text")
_THOUGHTS = ("thinking", "reasoning", "reasoning_text", "summary_text")
#: Programs write so in the user's name.
_REMINDER = "<system-reminder>"
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty", "stop",
    "stop_sequences", "n", "tool_choice", "reasoning_effort",
)  # fmt: skip


@dataclass(slots=True)
class DialogueMessage:
    role: Role
    text: str = ""
    thinking: str | None = None
    #: As docs/events.md has them.
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    #: Of a result.
    call_id: str | None = None
    output: Any = None
    ok: bool | None = None
    #: All parts, where some are no text.
    content: Any = None
    synthetic: bool = False


@dataclass(slots=True)
class Dialogue:
    messages: list[DialogueMessage] = field(default_factory=list)
    system: str | None = None
    tools: list[Any] | None = None
    model: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    #: The answer that it goes on from, where the server keeps what was said.
    previous: str | None = None
    #: A text that the model goes on with, in the place of messages.
    prompt: str | None = None

    def chains(self) -> list[int]:
        """A number for all that was said up to each message, the same whenever it is said."""
        chain = answer_chain(self.previous or "")
        chains = []
        for message in self.messages:
            chain = chained(chain, message)
            chains.append(chain)
        return chains


def answer_chain(answer_id: str) -> int:
    """The number of all that was said up to an answer that its server keeps."""
    return xxh3_64_intdigest(answer_id.encode())


def chained(before: int, message: DialogueMessage) -> int:
    """Clients repeat answers in forms of their own: without thoughts, with other spaces."""
    calls = [(call["name"], _plain_arguments(call.get("arguments"))) for call in message.tool_calls]
    content = message.output if message.role == "tool" else message.content
    said = (before, message.role, message.text.strip(), calls, message.call_id, content)
    return xxh3_64_intdigest(_encoder.encode(said))


def dialogue_of(endpoint: Endpoint, body: bytes) -> Dialogue:
    """Raises ValueError where the request is none that anybody could answer."""
    try:
        request = msgspec.json.decode(body)
        if not isinstance(request, dict):
            raise TypeError("the request is no object")
        dialogue = _FORMS[endpoint](request)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"the request has another form than {endpoint.value!r}") from error
    dialogue.model = request.get("model") if isinstance(request.get("model"), str) else None
    dialogue.tools = request.get("tools") if isinstance(request.get("tools"), list) else None
    dialogue.sampling = {name: request[name] for name in _SAMPLING if request.get(name) is not None}
    return dialogue


def _chat(request: Mapping[str, Any]) -> Dialogue:
    dialogue = Dialogue()
    systems = []
    for each in request["messages"]:
        role, content = each.get("role"), each.get("content")
        if role in ("system", "developer"):
            if not dialogue.messages:
                systems.append(text_of(content))
            else:
                dialogue.messages.append(DialogueMessage("system", text_of(content)))
        elif role in ("tool", "function"):
            call_id = each.get("tool_call_id")
            dialogue.messages.append(
                DialogueMessage("tool", call_id=call_id, output=_plain(content))
            )
        elif role == "assistant":
            dialogue.messages.append(chat_answer(each))
        else:
            dialogue.messages.append(_user(content))
    dialogue.system = "\n\n".join(filter(None, systems)) or None
    return dialogue


def _messages(request: Mapping[str, Any]) -> Dialogue:
    dialogue = Dialogue(system=text_of(request.get("system")) or None)
    for each in request["messages"]:
        content = each.get("content")
        if each.get("role") == "assistant":
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            dialogue.messages.append(parts_answer(parts))
        elif each.get("role") == "system":
            dialogue.messages.append(DialogueMessage("system", text_of(content)))
        else:
            dialogue.messages += _user_parts(content)
    return dialogue


def _user_parts(content: Any) -> Iterator[DialogueMessage]:
    """Anthropic's results of tools are parts of a user's message, before what the user says."""
    parts = content if isinstance(content, list) else [content]
    rest = []
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "tool_result":
            failed = part.get("is_error")
            yield DialogueMessage(
                "tool",
                call_id=part.get("tool_use_id"),
                output=_plain(part.get("content")),
                ok=None if failed is None else not failed,
            )
        else:
            rest.append(part)
    if rest:
        yield _user(rest)


def _responses(request: Mapping[str, Any]) -> Dialogue:
    dialogue = Dialogue(system=request.get("instructions") or None)
    dialogue.previous = request.get("previous_response_id") or None
    told = request["input"]
    items = [{"role": "user", "content": told}] if isinstance(told, str) else told
    answer: list[Any] = []
    for item in items:
        if _is_answered(item):
            answer.append(item)
            continue
        if answer:
            dialogue.messages.append(items_answer(answer))
            answer = []
        kind = str(item.get("type") or "message")
        if kind.endswith("_output"):
            output = _plain(item.get("output"))
            dialogue.messages.append(
                DialogueMessage("tool", call_id=item.get("call_id"), output=output)
            )
        elif item.get("role") in ("system", "developer"):
            text = text_of(item.get("content"))
            if dialogue.messages:
                dialogue.messages.append(DialogueMessage("system", text))
            else:
                dialogue.system = "\n\n".join(filter(None, [dialogue.system, text])) or None
        else:
            dialogue.messages.append(_user(item.get("content")))
    if answer:
        dialogue.messages.append(items_answer(answer))
    return dialogue


def _completions(request: Mapping[str, Any]) -> Dialogue:
    prompt = request["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    return Dialogue(prompt=prompt if isinstance(prompt, str) else None)


_FORMS = {
    Endpoint.CHAT: _chat,
    Endpoint.MESSAGES: _messages,
    Endpoint.RESPONSES: _responses,
    Endpoint.COMPLETIONS: _completions,
}


# Answers, as they are given and as they are repeated


def chat_answer(message: Mapping[str, Any]) -> DialogueMessage:
    calls = [
        _call(call.get("id"), (call.get("function") or {}).get("name"),
              (call.get("function") or {}).get("arguments"), at)
        for at, call in enumerate(message.get("tool_calls") or ())
    ]  # fmt: skip
    thinking = message.get("reasoning_content") or message.get("reasoning")
    return DialogueMessage(
        "assistant",
        text_of(message.get("content")),
        thinking if isinstance(thinking, str) else None,
        calls,
    )


def parts_answer(parts: Sequence[Any]) -> DialogueMessage:
    calls = [
        _call(part.get("id"), part.get("name"), part.get("input"), at)
        for at, part in enumerate(parts)
        if isinstance(part, dict) and part.get("type") in ("tool_use", "server_tool_use")
    ]
    return DialogueMessage("assistant", text_of(list(parts)), _thoughts(parts), calls)


def items_answer(items: Sequence[Mapping[str, Any]]) -> DialogueMessage:
    """Items of OpenAI's Responses."""
    texts, thoughts, calls = [], [], []
    for at, item in enumerate(items):
        kind = str(item.get("type") or "message")
        if kind == "message":
            texts.append(text_of(item.get("content")))
        elif kind == "reasoning":
            thoughts.append(_thoughts(item.get("content") or item.get("summary") or ()) or "")
        elif kind.endswith("_call"):
            arguments = item.get("arguments", item.get("input", item.get("action")))
            name = item.get("name") or kind.removesuffix("_call")
            calls.append(_call(item.get("call_id") or item.get("id"), name, arguments, at))
    return DialogueMessage(
        "assistant",
        "\n".join(filter(None, texts)),
        "\n".join(filter(None, thoughts)) or None,
        calls,
    )


def _is_answered(item: Mapping[str, Any]) -> bool:
    kind = str(item.get("type") or "message")
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _call(call_id: object, name: object, arguments: Any, at: int) -> dict[str, Any]:
    call = {"id": str(call_id or f"call-{at}"), "name": str(name or "unknown")}
    return call | ({} if arguments is None else {"arguments": arguments})


def text_of(content: Any) -> str:
    """The texts, without thoughts, calls and pictures."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (
        part if isinstance(part, str) else part.get("text")
        for part in parts
        if isinstance(part, str) or (isinstance(part, dict) and part.get("type", "text") in _TEXTS)
    )
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _thoughts(parts: Any) -> str | None:
    texts = (
        part.get("thinking") or part.get("text")
        for part in parts
        if isinstance(part, dict) and part.get("type") in _THOUGHTS
    )
    return "\n".join(text for text in texts if isinstance(text, str) and text) or None


def _user(content: Any) -> DialogueMessage:
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else (part or {}).get("text") for part in parts]
    is_plain = all(isinstance(text, str) for text in texts) or content is None
    return DialogueMessage(
        "user",
        text_of(content),
        content=None if is_plain else content,
        synthetic=is_plain and all(str(text).lstrip().startswith(_REMINDER) for text in texts),
    )


def _plain(content: Any) -> Any:
    """Text where it is nothing but text, else all parts as they are."""
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") in _TEXTS for part in content
    ):
        return text_of(content)
    return content


def _plain_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
