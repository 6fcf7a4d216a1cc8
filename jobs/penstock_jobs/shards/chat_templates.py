"""Messages in OpenAI's form, and chat templates: text that jinja2 makes of them.

Templates are other people's programs and run in a sandbox. The same messages give the same text on
any day: `strftime_now` exists only where a day is named, and templates that need it otherwise fail.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, NoReturn

import msgspec
from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from penstock.errors import InvalidInput
from penstock_jobs.shards.conversation import ChatMessage

#: What the code of a template may raise when it meets messages that it was not made for.
TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
    RecursionError,
)  # fmt: skip
#: Where marks are kept while a template runs: a name that no template can say.
_MARKS = "generation marks"
#: Characters that never stand in text.
_MARK_PAIRS = [(chr(code), chr(code + 1)) for code in range(0xFDD0, 0xFDF0, 2)]
_encoder = msgspec.json.Encoder()

Messages = Sequence[Mapping[str, Any]]
#: Starts and ends of what the model wrote, in characters.
Extents = list[tuple[int, int]]


def openai_message(message: ChatMessage) -> dict[str, Any]:
    """The keys always in this order. What the model thought is `reasoning_content`, as inference
    servers call it. Arguments are the text that was sent."""
    form: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        form["reasoning_content"] = message.reasoning
    if message.tool_calls:
        form["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    for name in ("tool_call_id", "name") if message.role == "tool" else ():
        if (value := getattr(message, name)) is not None:
            form[name] = value
    return form


def encode_message(message: ChatMessage, *, trained: bool) -> bytes:
    """What the model said and is not trained has the weight 0, as fine-tuning files have it."""
    form = openai_message(message)
    if message.role == "assistant" and not trained:
        form["weight"] = 0
    return _encoder.encode(form)


class RawObject(dict[str, Any]):
    """Arguments that templates may go through, and that `tojson` writes as the model did."""

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.text = text


class RawText(str):
    """Arguments that are no object: `tojson` writes them as they are."""

    __slots__ = ()


def template_message(message: ChatMessage) -> dict[str, Any]:
    """For templates, which expect arguments as objects. `thinking` is another name that some have
    for `reasoning_content`."""
    form = openai_message(message)
    if message.reasoning is not None:
        form["thinking"] = message.reasoning
    for call in form.get("tool_calls", ()):
        function = call["function"]
        text = function["arguments"]
        try:
            values = msgspec.json.decode(text.encode(), type=dict[str, Any])
            function["arguments"] = RawObject(text, values)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            function["arguments"] = RawText(text)
    return form


class ChatTemplate:
    """`special_tokens` are names like `bos_token` with their texts, which some templates print;
    they are in its digest."""

    def __init__(
        self,
        text: str,
        where: str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        day: date | None = None,
    ) -> None:
        """Raises InvalidInput."""
        environment = _Environment()
        try:
            self._template: Template = environment.from_string(text)
        except (TemplateError, RecursionError) as error:
            raise InvalidInput(what=f"The chat template {where}", why=str(error)) from error
        #: Whether it says itself what the model writes.
        self.marks_generation = environment.marks_generation
        content = text.encode()
        if special_tokens:
            content += b"\0" + json.dumps(dict(special_tokens), sort_keys=True).encode()
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._shared: dict[str, Any] = {**(special_tokens or {}), "raise_exception": _raise}
        if day is not None:
            self._shared["strftime_now"] = day.strftime

    def render(
        self,
        messages: Messages,
        tools: Any,
        *,
        prompt: bool = False,
        marks: tuple[str, str] = ("", ""),
    ) -> str:
        """`prompt`: up to where the model begins to write. `marks` stand around the `generation`
        blocks. Raises TEMPLATE_FAILURES."""
        values = {"messages": messages, "tools": tools, "documents": None, _MARKS: marks}
        return self._template.render(self._shared | values, add_generation_prompt=prompt)

    def render_marked(self, messages: Messages, tools: Any) -> tuple[str, Extents]:
        """With what stands in its `generation` blocks. Raises TEMPLATE_FAILURES."""
        content = json.dumps([messages, tools], ensure_ascii=False)
        unused = [pair for pair in _MARK_PAIRS if not any(mark in content for mark in pair)]
        if not unused:
            raise ValueError("the messages hold all characters that never stand in text")
        marks = unused[0]
        pieces: list[str] = []
        extents: Extents = []
        end = 0
        for part in self.render(messages, tools, marks=marks).split(marks[0]):
            written, mark, rest = part.partition(marks[1])
            if mark:
                extents.append((end, end + len(written)))
            pieces += [written, rest]
            end += len(written) + len(rest)
        return "".join(pieces), extents


class _Generation(Extension):
    tags = frozenset({"generation"})  # type: ignore[assignment]  # jinja2 says a set

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        environment = self.environment
        if isinstance(environment, _Environment):
            environment.marks_generation = True
        call = self.call_method("_mark", [nodes.ContextReference()])
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _mark(self, context: Context, caller: Callable[[], str]) -> str:
        start, end = context[_MARKS]
        return f"{start}{caller()}{end}"


class _Environment(ImmutableSandboxedEnvironment):
    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        self.marks_generation = False
        self.filters["tojson"] = _to_json


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As templates expect it, without the escapes of HTML. Arguments of tools stay as sent."""
    if isinstance(value, RawText):
        return str(value)
    if isinstance(value, RawObject) and indent is None and separators is None and not sort_keys:
        return value.text
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
