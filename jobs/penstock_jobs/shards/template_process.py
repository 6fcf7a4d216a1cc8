"""The process in which chat templates run: its CPU time and memory are bounded by the kernel.

One for all templates of a process that builds shards, started with the first. It gets a template
and a context, and answers with texts; when it went over a limit, there is another for the next.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from errno import EPERM
from functools import lru_cache
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

import msgspec

from penstock.execution.confinement import (
    COMMON_FILES,
    CallRule,
    KernelLimits,
    forbid_calls,
    limit_files,
    limit_resources,
)
from penstock_jobs.shards.compiled_template import (
    TEMPLATE_FAILURES,
    CompiledTemplate,
    Messages,
    TemplateSource,
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
_FORBIDDEN = [
    CallRule(call, EPERM)
    for call in (
        "accept", "accept4", "bind", "bpf", "connect", "execve", "execveat", "io_uring_setup",
        "keyctl", "listen", "mount", "open_by_handle_at", "perf_event_open", "process_vm_readv",
        "process_vm_writev", "ptrace", "setns", "socket", "unshare", "userfaultfd",
    )
]  # fmt: skip
#: What jinja2 loads late, when a template fails, is loaded before files are out of reach.
_EXERCISE = "{% for a in messages %}{{ a.b.c | tojson }}{% endfor %}"


class DraftRequest(NamedTuple):
    """Without messages, only whether the template can be compiled."""

    source: TemplateSource
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
    """The template failed, or wrote too much."""

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
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def ask(self, request: DraftRequest) -> Drafts | Refused:
        """Raises LimitReached."""
        message = pickle.dumps(request)
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._connection is not None
            try:
                self._connection.send_bytes(message)
                answer: Answer = _decoder.decode(self._connection.recv_bytes(_ANSWER_BYTES_MAX))
            except (EOFError, OSError, msgspec.MsgspecError) as error:
                raise LimitReached(self._why(self._stop())) from error
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
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"it ended its process, by {how}"

    def _start(self) -> None:
        self._stop()
        ours, theirs = Pipe()
        with theirs:
            start = f"from {__name__} import main; main()"
            limits = (str(self._limits["cpu_seconds"]), str(self._limits["memory_bytes"]))
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", start, str(theirs.fileno()), *limits],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Secrets in the environment are not for templates.
                env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
                start_new_session=True,  # Ctrl-C is for the caller
            )
        self._connection = ours

    def _stop(self) -> int:
        """Returns how it ended."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)
        process.kill()
        return process.wait()

    def close(self) -> None:
        with self._lock:
            self._stop()


def main() -> None:
    """Answer until the caller is gone."""
    connection = Connection(int(sys.argv[1]))
    cpu_seconds, memory_bytes = float(sys.argv[2]), int(sys.argv[3])
    exercise = TemplateSource(_EXERCISE)
    _answer(DraftRequest(exercise, messages=[{"role": "user"}], written=[0]))
    limit_resources(KernelLimits(memory_bytes, _LIFETIME_CPU_SECONDS, _OPEN_FILES_MAX))
    limit_files([*sys.path, sys.prefix, sys.base_prefix, *COMMON_FILES])
    forbid_calls(_FORBIDDEN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with suppress(EOFError, OSError):
        while True:
            message = connection.recv_bytes()
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            try:
                answer = _encoder.encode(_answer(pickle.loads(message)))
            except MemoryError:
                answer = _encoder.encode(OutOfMemory())
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send_bytes(answer)


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
def _compiled(source: TemplateSource, chars_max: int) -> CompiledTemplate:
    return CompiledTemplate(source, chars_max)
