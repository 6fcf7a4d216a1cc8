"""What a scripted engine says: its answers, their tokens, and the pieces of each protocol."""

import base64
import codecs
import io
import json
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Document = dict[str, Any]

END, ROLES = 300, {"system": 301, "user": 302, "assistant": 303, "tool": 304}


@dataclass(frozen=True)
class ScriptedAnswer:
    text: str = ""
    thinking: str = ""
    #: Names and arguments, as text.
    calls: tuple[tuple[str, str], ...] = ()
    #: It breaks off after so many tokens.
    breaks_after: int | None = None
    #: Seconds before each token.
    pace_s: float = 0.0
    #: From which token on the engine has other weights, and their name.
    new_weights: tuple[int, str] | None = None
    #: For each token that the model read: two layers, two experts of each.
    experts: bool = False

    @property
    def sampled(self) -> str:
        """What the model wrote, before anybody took it apart."""
        thought = f"<think>{self.thinking}</think>" if self.thinking else ""
        calls = "".join(f"<call>{name} {arguments}</call>" for name, arguments in self.calls)
        return thought + self.text + calls


@dataclass
class Sampled:
    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[float]


def version_spans(before: str, answer: ScriptedAnswer, sampled: Sampled) -> list[Document]:
    end = len(sampled.ids)
    if answer.new_weights is None:
        return [{"version": before, "start": 0, "end": end}]
    place, after = answer.new_weights
    old = {"version": before, "start": 0, "end": place}
    return [old, {"version": after, "start": place, "end": end}]


def experts_of(sampled: Sampled) -> NDArray[np.uint8]:
    """The last token was never read."""
    rows = len(sampled.prompt_ids) + len(sampled.ids) - 1
    numbers = np.arange(rows * 2, dtype=np.uint8).reshape(rows, 2, 1) % 100
    return np.concatenate([numbers, numbers + 100], axis=2)


def npy_text(array: NDArray[np.uint8]) -> str:
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


# Tokens: mostly bytes, but what is sampled has pairs here and there, as no tokenizer would cut it.


def tokens_of(text: str) -> list[int]:
    return list(text.encode())


def odd_tokens(text: str) -> list[int]:
    ids, at, content = [], 0, text.encode()
    while at < len(content):
        pair = content[at : at + 2]
        if len(pair) == 2 and (pair[0] * 31 + pair[1]) % 5 == 0 and max(pair) < 128:
            ids.append(1000 + pair[0] * 128 + pair[1])
            at += 2
        else:
            ids.append(content[at])
            at += 1
    return ids


def bytes_of(token: int) -> bytes:
    return bytes(divmod(token - 1000, 128)) if token >= 1000 else bytes([token][: token < 256])


def texts_of(sampled: Sampled) -> list[str]:
    """Of each token; a character of several tokens comes with the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(bytes_of(token)) for token in sampled.ids]


def said_in(message: Document) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else compact_json(content) if content else ""
    if message["role"] != "assistant":
        return text
    calls = tuple(
        (call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    thinking = message.get("reasoning_content") or ""
    return ScriptedAnswer(text, thinking, calls).sampled


def answers_before(request: Document) -> int:
    return sum(message["role"] == "assistant" for message in request["messages"])


def deltas_of(request: Document, answer: ScriptedAnswer, sampled: Sampled) -> list[Document]:
    """Of each token. Those of calls are held back until a call is whole, as parsers do."""
    deltas: list[Document] = [{} for _ in sampled.ids]
    ends, written = [], ""
    for text in texts_of(sampled):
        written += text
        ends.append(len(written))
    thought = len(f"<think>{answer.thinking}</think>") if answer.thinking else 0
    place, opened, closed = 0, len("<think>"), thought - len("</think>")
    for at, end in enumerate(ends):
        if thinking := written[max(place, opened) : min(end, closed)] if thought else "":
            deltas[at]["reasoning_content"] = thinking
        if inside := written[max(place, thought) : min(end, thought + len(answer.text))]:
            deltas[at]["content"] = inside
        place = end
    begin = thought + len(answer.text)
    for number, (name, arguments) in enumerate(answer.calls):
        begin += len(f"<call>{name} {arguments}</call>")
        at = next(at for at, end in enumerate(ends) if end >= begin)
        function = {"name": name, "arguments": arguments}
        call = {
            "index": number,
            "id": f"t-{answers_before(request)}-{number}",
            "type": "function",
            "function": function,
        }
        deltas[at].setdefault("tool_calls", []).append(call)
    return deltas


def chat_logprobs(sampled: Sampled, start: int, end: int) -> Document:
    return {
        "content": [
            {"token": repr(bytes_of(token)), "logprob": logprob, "bytes": None, "top_logprobs": []}
            for token, logprob in zip(
                sampled.ids[start:end], sampled.logprobs[start:end], strict=True
            )
        ]
    }


def block_events(block: Document) -> tuple[Document, list[Document]]:
    if block["type"] == "text":
        return block | {"text": ""}, [
            {"type": "text_delta", "text": piece} for piece in pieces_of(block["text"])
        ]
    if block["type"] == "thinking":
        return block | {"thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": "s"},
        ]
    given = json.dumps(block["input"])
    return block | {"input": {}}, [
        {"type": "input_json_delta", "partial_json": piece} for piece in pieces_of(given)
    ]


def pieces_of(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def usage_of(sampled: Sampled) -> Document:
    prompt, completion = len(sampled.prompt_ids), len(sampled.ids)
    return {"prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion}  # fmt: skip


def compact_json(document: object) -> str:
    return msgspec.json.encode(document).decode()
