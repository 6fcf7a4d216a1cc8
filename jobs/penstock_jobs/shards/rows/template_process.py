"""Chat templates in jinja2, run in a process with limits on CPU time and memory.

A template is untrusted code. One process serves all templates. It gets a template and a context and
answers with texts. The model's text is in `generation` blocks; without them, the text is rendered
up to each of its messages and behind it.
"""

import json
import pickle
import signal
import socket
import subprocess
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import msgspec
from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from penstock.backends.execution.confinement import (
    ALONE,
    COMMON_FILES,
    forbid_calls,
    limit_files,
    limit_resources,
)
from penstock.backends.execution.guarded_process import Channel, GuardedProcess, describe_status
from penstock.core.errors import one_line

#: Errors of templates on unexpected messages.
TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
    RecursionError,
)  # fmt: skip
#: A name that no template can use.
_MARKS = "generation marks"
#: Pairs of characters that never occur in text.
_MARK_PAIRS = [(chr(code), chr(code + 1)) for code in range(0xFDD0, 0xFDF0, 2)]

Messages = Sequence[Mapping[str, Any]]
Extents = list[tuple[int, int]]


class TextTooLong(Exception):
    """A template wrote too much."""


class TextDraft(msgspec.Struct):
    """A branch as text, with the places of messages that the model wrote."""

    text: str = ""
    pieces: list[tuple[int, int, int]] = []

    def add(self, at: int, text: str, start: int) -> None:
        self.text = text
        self.pieces.append((at, start, len(text)))


class RawObject(dict[str, Any]):
    """Arguments as an object for templates. `tojson` writes the model's own text."""

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.text = text


class RawText(str):
    """Arguments that are not an object. `tojson` writes them unchanged."""

    __slots__ = ()


def template_message(form: dict[str, Any]) -> dict[str, Any]:
    """Adapt a message to templates: arguments as objects, and reasoning also as `thinking`."""
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
        """Compile. Raises TemplateError and RecursionError."""
        environment = _Environment()
        self._template: Template = environment.from_string(source)
        self._chars_max = chars_max
        #: Whether the template has `generation` blocks.
        self.marks_generation = environment.marks_generation

    def render(
        self,
        messages: Messages,
        tools: Any,
        *,
        prompt: bool = False,
        marks: tuple[str, str] = ("", ""),
    ) -> str:
        """Render messages, with `prompt` up to where the model begins to write.

        `marks` enclose `generation` blocks. Raises TEMPLATE_FAILURES, TextTooLong."""
        values = {"messages": messages, "tools": tools, "documents": None, _MARKS: marks}
        values |= {"raise_exception": _raise, "add_generation_prompt": prompt}
        text = self._template.render(values)
        if len(text) > self._chars_max:
            raise TextTooLong
        return text

    def drafts(
        self, messages: Messages, written: Sequence[int], tools: Any, special: tuple[str, ...]
    ) -> list[TextDraft]:
        """Render texts in which the model wrote these messages.

        `special` are texts of special tokens. Raises TEMPLATE_FAILURES, TextTooLong."""
        if self.marks_generation and (draft := self._marked(messages, written, tools)):
            return [draft]
        drafts: list[TextDraft] = []
        chars = 0
        for at in written:
            text, start = self._up_to(messages, at, tools)
            # The model writes the end token, but no white space after it.
            piece = text[start:]
            stripped = piece.rstrip()
            end = start + len(stripped if stripped.endswith(special) else piece)
            if end == start:
                continue  # the template hides it
            if not drafts or not text[:start].startswith(drafts[-1].text):
                drafts.append(TextDraft())
            chars += end - len(drafts[-1].text)
            if chars > self._chars_max:
                raise TextTooLong
            drafts[-1].add(at, text[:end], start)
        return drafts

    def prompt(self, messages: Messages, tools: Any) -> TextDraft:
        """Render messages and what opens the next answer, which is the only piece.

        Raises TEMPLATE_FAILURES, TextTooLong."""
        before, prompt = self.render(messages, tools), self.render(messages, tools, prompt=True)
        if not prompt.startswith(before):
            raise ValueError("what opens an answer changes the messages before it")
        return TextDraft(prompt, [(len(messages), len(before), len(prompt))])

    def _marked(self, messages: Messages, written: Sequence[int], tools: Any) -> TextDraft | None:
        """Render by `generation` blocks; None unless each answer has one, with its reasoning."""
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
        """Return the text and the extents of its `generation` blocks."""
        content = json.dumps([messages, tools], ensure_ascii=False)
        unused = [pair for pair in _MARK_PAIRS if not any(mark in content for mark in pair)]
        if not unused:
            raise ValueError("the messages hold all reserved characters")
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
        """Return the text up to a message, and where the model began to write."""
        text = self.render(messages[: at + 1], tools)
        prompt = self.render(messages[:at], tools, prompt=True)
        if text.startswith(prompt):
            return text, len(prompt)
        # The prompt differs from the shown text, as with dropped thoughts. The common beginning was
        # not written by the model.
        before = self.render(messages[:at], tools)
        if not text.startswith(before):
            raise ValueError("the text before a message depends on the message")
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
    """Write JSON without HTML escapes. Arguments of tools stay as sent."""
    if isinstance(value, RawText):
        return str(value)
    if isinstance(value, RawObject) and indent is None and separators is None and not sort_keys:
        return value.text
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


# The process


#: CPU time for one context, or for compiling a template.
CPU_SECONDS_MAX = 30
#: Memory beyond the process's own needs.
MEMORY_BYTES_MAX = 1 << 30
TEXT_CHARS_MAX = 32 << 20
_ANSWER_BYTES_MAX = 4 * TEXT_CHARS_MAX + (1 << 20)
#: Characters kept of a template's error.
_FAILURE_CHARS_MAX = 200
_COMPILED_MAX = 8
#: The whole lifetime is practically unlimited.
_LIFETIME_CPU_SECONDS = 1 << 30
_OPEN_FILES_MAX = 64
#: Loads what jinja2 imports lazily, before files are out of reach.
_EXERCISE = "{% for a in messages %}{{ a.b.c | tojson }}{% endfor %}"


class DraftRequest(NamedTuple):
    """A context to render. Without messages the template is only compiled.

    If the model wrote none of them, they are the prompt of its next answer."""

    source: str
    chars_max: int = TEXT_CHARS_MAX
    messages: Sequence[dict[str, Any]] = ()
    written: Sequence[int] = ()
    tools: Any = None
    special: tuple[str, ...] = ()


class Drafts(msgspec.Struct, tag=True):
    drafts: list[TextDraft]


class Refused(msgspec.Struct, tag=True):
    why: str


class OutOfMemory(msgspec.Struct, tag=True):
    pass


Answer = Drafts | Refused | OutOfMemory
_decoder = msgspec.msgpack.Decoder(Answer)


class LimitReached(Exception):
    """The process exceeded a limit, named here."""


class TemplateProcess:
    """The process of templates. Safe between threads."""

    def __init__(
        self, *, cpu_seconds: float = CPU_SECONDS_MAX, memory_bytes: int = MEMORY_BYTES_MAX
    ) -> None:
        self._limits = {"cpu_seconds": cpu_seconds, "memory_bytes": memory_bytes}
        self._lock = threading.Lock()
        self._process: GuardedProcess | None = None

    def ask(self, request: DraftRequest) -> Drafts | Refused:
        message = pickle.dumps(request)
        with self._lock:
            if self._process is None or self._process.has_ended:
                self._stop()
                limits = map(str, self._limits.values())
                self._process = GuardedProcess(__name__, *limits, output=subprocess.DEVNULL)
            channel = Channel(self._process.end)
            try:
                channel.send(message)
                answer: Answer = _decoder.decode(channel.receive(_ANSWER_BYTES_MAX))
            except (EOFError, OSError, msgspec.MsgspecError) as error:
                raise LimitReached(self._why(self._stop(1.0))) from error
            except BaseException:  # an unread answer must not be taken for the next one
                self._stop()
                raise
            if isinstance(answer, OutOfMemory):
                self._stop()
                mebibytes = self._limits["memory_bytes"] / (1 << 20)
                raise LimitReached(f"it needed more than {mebibytes:.0f} MiB of memory")
            return answer

    def _why(self, status: int) -> str:
        if status == -signal.SIGPROF:
            return f"it needed more than {self._limits['cpu_seconds']} seconds of CPU time"
        return f"it ended its process, {describe_status(status)}"

    def _stop(self, seconds: float = 0.0) -> int:
        process, self._process = self._process, None
        return 0 if process is None else process.stop(seconds)

    def close(self) -> None:
        with self._lock:
            self._stop()


def main(end: socket.socket, cpu_seconds: str, memory_bytes: str) -> None:
    channel = Channel(end)
    _answer(DraftRequest(_EXERCISE, messages=[{"role": "user"}], written=[0]))
    limit_resources(
        memory_bytes=int(memory_bytes),
        cpu_seconds=_LIFETIME_CPU_SECONDS,
        open_files=_OPEN_FILES_MAX,
    )
    limit_files([*sys.path, sys.prefix, sys.base_prefix, *COMMON_FILES])
    forbid_calls(ALONE)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with suppress(EOFError, OSError):
        while True:
            message = channel.receive()
            signal.setitimer(signal.ITIMER_PROF, float(cpu_seconds))
            try:
                answer = msgspec.msgpack.encode(_answer(pickle.loads(message)))
            except MemoryError:
                answer = msgspec.msgpack.encode(OutOfMemory())
            signal.setitimer(signal.ITIMER_PROF, 0)
            channel.send(answer)


def _answer(request: DraftRequest) -> Drafts | Refused:
    try:
        template = _compiled(request.source, request.chars_max)
        messages: Messages = [template_message(form) for form in request.messages]
        if messages and not request.written:
            drafts = [template.prompt(messages, request.tools)]
        else:
            drafts = template.drafts(messages, request.written, request.tools, request.special)
        for draft in drafts:
            draft.text.encode()  # refuses lone surrogates
        return Drafts(drafts)
    except TextTooLong:
        return Refused(f"it wrote more than {request.chars_max} characters")
    except TEMPLATE_FAILURES as error:
        return Refused(one_line(error)[:_FAILURE_CHARS_MAX])


@lru_cache(_COMPILED_MAX)
def _compiled(source: str, chars_max: int) -> CompiledTemplate:
    return CompiledTemplate(source, chars_max)
