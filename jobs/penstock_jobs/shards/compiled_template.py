"""A chat template as jinja2 runs it, and the texts that it makes of a conversation.

It runs in the process of `template_process`, since the template is somebody else's program. What
the model wrote is what stands in its `generation` blocks; without them, the text is rendered up to
each of its messages and behind it.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

#: What the code of a template may raise when it meets messages that it was not made for.
TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
    RecursionError,
)  # fmt: skip
#: Where marks are kept while a template runs: a name that no template can say.
_MARKS = "generation marks"
#: Characters that never stand in text.
_MARK_PAIRS = [(chr(code), chr(code + 1)) for code in range(0xFDD0, 0xFDF0, 2)]

Messages = Sequence[Mapping[str, Any]]
#: Starts and ends of what the model wrote, in characters.
Extents = list[tuple[int, int]]


class TextTooLong(Exception):
    """A template wrote more than it may."""


class TextDraft(msgspec.Struct):
    """A branch, as text."""

    text: str = ""
    #: Which messages the model wrote, and where each starts and ends.
    pieces: list[tuple[int, int, int]] = []

    def add(self, at: int, text: str, start: int) -> None:
        self.text = text
        self.pieces.append((at, start, len(text)))


class RawObject(dict[str, Any]):
    """Arguments that templates may go through, and that `tojson` writes as the model did."""

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.text = text


class RawText(str):
    """Arguments that are no object: `tojson` writes them as they are."""

    __slots__ = ()


def template_message(form: dict[str, Any]) -> dict[str, Any]:
    """A message in OpenAI's form for templates, which expect arguments as objects. `thinking` is
    another name that some have for `reasoning_content`."""
    if (reasoning := form.get("reasoning_content")) is not None:
        form["thinking"] = reasoning
    for call in form.get("tool_calls", ()):
        function = call["function"]
        text = function["arguments"]
        try:
            values = msgspec.json.decode(text.encode(), type=dict[str, Any])
            function["arguments"] = RawObject(text, values)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            function["arguments"] = RawText(text)
    return form


class CompiledTemplate:
    def __init__(self, source: str, chars_max: int) -> None:
        """Raises TemplateError and RecursionError."""
        environment = _Environment()
        self._template: Template = environment.from_string(source)
        self._chars_max = chars_max
        #: Whether it says itself what the model writes.
        self.marks_generation = environment.marks_generation

    def render(
        self,
        messages: Messages,
        tools: Any,
        *,
        prompt: bool = False,
        marks: tuple[str, str] = ("", ""),
    ) -> str:
        """`prompt`: up to where the model begins to write. `marks` stand around the `generation`
        blocks. Raises TEMPLATE_FAILURES, TextTooLong."""
        values = {"messages": messages, "tools": tools, "documents": None, _MARKS: marks}
        values |= {"raise_exception": _raise, "add_generation_prompt": prompt}
        text = self._template.render(values)
        if len(text) > self._chars_max:
            raise TextTooLong
        return text

    def drafts(
        self, messages: Messages, written: Sequence[int], tools: Any, special: tuple[str, ...]
    ) -> list[TextDraft]:
        """Of a context, the texts in which the model wrote these messages. `special` are texts of
        special tokens. Raises TEMPLATE_FAILURES, TextTooLong."""
        if self.marks_generation and (draft := self._marked(messages, written, tools)):
            return [draft]
        drafts: list[TextDraft] = []
        chars = 0
        for at in written:
            text, start = self._up_to(messages, at, tools)
            # The model writes the token that ends its turn, and no white space behind it.
            piece = text[start:]
            stripped = piece.rstrip()
            end = start + len(stripped if stripped.endswith(special) else piece)
            if end == start:
                continue  # nothing that this template shows
            if not drafts or not text[:start].startswith(drafts[-1].text):
                drafts.append(TextDraft())
            chars += end - len(drafts[-1].text)
            if chars > self._chars_max:
                raise TextTooLong
            drafts[-1].add(at, text[:end], start)
        return drafts

    def _marked(self, messages: Messages, written: Sequence[int], tools: Any) -> TextDraft | None:
        """None where its blocks cannot be believed. There has to be one for each message of the
        model, with all that it thought: templates that drop that show it in the last alone."""
        text, extents = self._render_marked(messages, tools)
        answers = [at for at, form in enumerate(messages) if form["role"] == "assistant"]
        blocks = [(at, *extent) for at, extent in zip(answers, extents, strict=False)]
        if len(answers) != len(extents) or not all(
            (messages[at].get("reasoning_content") or "").strip() in text[start:end]
            for at, start, end in blocks
        ):
            return None
        draft = TextDraft()
        mine = set(written)
        for at, start, end in blocks:
            if at in mine:
                draft.add(at, text[:end], start)
        return draft

    def _render_marked(self, messages: Messages, tools: Any) -> tuple[str, Extents]:
        """With what stands in its `generation` blocks."""
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

    def _up_to(self, messages: Messages, at: int, tools: Any) -> tuple[str, int]:
        """The text up to this message, itself included, and where the model began to write."""
        text = self.render(messages[: at + 1], tools)
        prompt = self.render(messages[:at], tools, prompt=True)
        if text.startswith(prompt):
            return text, len(prompt)
        # What it asks the model with is not what it shows of the answer, as where it opens a
        # thought that is dropped later: what both have was not written by the model.
        before = self.render(messages[:at], tools)
        if not text.startswith(before):
            raise ValueError("what stands before a message depends on the message")
        ends = range(1, min(len(text), len(prompt)) + 1)
        return text, bisect_left(ends, True, key=lambda end: text[:end] != prompt[:end])


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
