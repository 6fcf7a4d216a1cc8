"""The process in which chat templates run: its CPU time and memory are bounded by the kernel.

One for all templates of a process that builds shards, started with the first. It gets a template
and a context, and answers with texts; when it went over a limit, there is another for the next.
"""

import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from penstock.execution.confinement import (
    ALONE,
    COMMON_FILES,
    forbid_calls,
    limit_files,
    limit_resources,
)
from penstock.execution.guarded_process import Channel, GuardedProcess, describe_status
from penstock_jobs.shards.compiled_template import (
    TEMPLATE_FAILURES,
    CompiledTemplate,
    Messages,
    TextDraft,
    TextTooLong,
    template_message,
)

#: For one context of a conversation, and for compiling a template.
CPU_SECONDS_MAX = 30
#: Beside what the process needs for itself.
MEMORY_BYTES_MAX = 1 << 30
#: Of the texts of one context.
TEXT_CHARS_MAX = 32 << 20
_ANSWER_BYTES_MAX = 4 * TEXT_CHARS_MAX + (1 << 20)
#: What is kept of what a template says when it fails.
_FAILURE_CHARS_MAX = 200
_COMPILED_MAX = 8
#: The time of a whole build is nobody's limit.
_LIFETIME_CPU_SECONDS = 1 << 30
_OPEN_FILES_MAX = 64
#: What jinja2 loads late, when a template fails, is loaded before files are out of reach.
_EXERCISE = "{% for a in messages %}{{ a.b.c | tojson }}{% endfor %}"


class DraftRequest(NamedTuple):
    """Without messages, only whether the template can be compiled."""

    source: str
    chars_max: int = TEXT_CHARS_MAX
    #: In OpenAI's form.
    messages: Sequence[dict[str, Any]] = ()
    written: Sequence[int] = ()
    tools: Any = None
    special: tuple[str, ...] = ()


class Drafts(msgspec.Struct, tag=True):
    drafts: list[TextDraft]
    marks_generation: bool


class Refused(msgspec.Struct, tag=True):
    why: str


class OutOfMemory(msgspec.Struct, tag=True):
    pass


Answer = Drafts | Refused | OutOfMemory
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Answer)


class LimitReached(Exception):
    """The process was over a limit, which this names."""


class TemplateProcess:
    """May be asked from any thread."""

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
            except BaseException:  # an answer that nobody reads must not be taken for the next one
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
                answer = _encoder.encode(_answer(pickle.loads(message)))
            except MemoryError:
                answer = _encoder.encode(OutOfMemory())
            signal.setitimer(signal.ITIMER_PROF, 0)
            channel.send(answer)


def _answer(request: DraftRequest) -> Drafts | Refused:
    try:
        template = _compiled(request.source, request.chars_max)
        messages: Messages = [template_message(form) for form in request.messages]
        drafts = template.drafts(messages, request.written, request.tools, request.special)
        for draft in drafts:
            draft.text.encode()  # half characters are no text
        return Drafts(drafts, template.marks_generation)
    except TextTooLong:
        return Refused(f"it wrote more than {request.chars_max} characters")
    except TEMPLATE_FAILURES as error:
        return Refused(" ".join(str(error).split())[:_FAILURE_CHARS_MAX])


@lru_cache(_COMPILED_MAX)
def _compiled(source: str, chars_max: int) -> CompiledTemplate:
    return CompiledTemplate(source, chars_max)
