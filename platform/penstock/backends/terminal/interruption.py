"""Signals: Ctrl-C ends a program within a second, with status 130 and without a traceback.

Python handles a signal when the main thread is back in Python. A library may be away for minutes,
and one that is being imported may abort where it is interrupted. A signal just before a wait is
handled after the wait. So a thread listens too: it asks running work to stop, and ends the program
where that does not help. Data stays right, as after a crash."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

INTERRUPTED = 130
#: How long a library is waited for.
_AWAY_SECONDS_MAX = 0.5
#: How long the release of processes, leases and unfinished files is waited for.
_CLEAN_UP_SECONDS_MAX = 10.0
#: The file name in its frames.
_IMPORT_SYSTEM = "<frozen importlib."
_SHOW_CURSOR = "\x1b[?25h"

#: Signals that end a command with an orderly end of its own.
END_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: What ends the listener of this process.
_listening: list[Callable[[], object]] = []
_interrupts: list[Callable[[], object]] = []
_ends: list[Callable[[], object]] = []


@contextmanager
def interrupted_by_ctrl_c(interrupt: Callable[[], object]) -> Iterator[None]:
    """Call `interrupt` at once, on another thread, when Ctrl-C comes within the block."""
    _interrupts.append(interrupt)
    try:
        yield
    finally:
        _interrupts.remove(interrupt)


class Interruption:
    def __init__(self) -> None:
        self._known = threading.Event()
        self._over = threading.Event()

    @property
    def known(self) -> bool:
        return self._known.is_set()

    def on_signal(self, _number: int, frame: FrameType | None) -> None:
        if _imports(frame):
            sys.setprofile(self._on_return)
        else:
            self._interrupt()

    def _on_return(self, frame: FrameType, event: str, _value: object) -> None:
        if event == "return" and not _imports(frame.f_back):
            sys.setprofile(None)
            self._interrupt()

    def _interrupt(self) -> None:
        if not self.known:  # some send it twice: what is being given back is given back whole
            self._known.set()
            raise KeyboardInterrupt

    def over(self) -> None:
        self._over.set()

    def listen(self, numbers: socket.socket) -> None:
        while number := numbers.recv(1):
            if number[0] in END_SIGNALS:
                for end in _ends:
                    end()
            # A command with an end of its own has another handler while it runs.
            if number[0] != signal.SIGINT or signal.getsignal(signal.SIGINT) != self.on_signal:
                continue
            for interrupt in _interrupts:
                interrupt()
            if not (self._known.wait(_AWAY_SECONDS_MAX) and self._over.wait(_CLEAN_UP_SECONDS_MAX)):
                end_now()


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported: native code in it may not outlive an exception."""
    while frame is not None and not frame.f_code.co_filename.startswith(_IMPORT_SYSTEM):
        frame = frame.f_back
    return frame is not None


def end_now() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it
            stream.write(_SHOW_CURSOR if stream.isatty() else "")
            stream.flush()
    os._exit(INTERRUPTED)


def leave(status: object) -> None:
    """End without a last look for garbage, which takes a fifth of a short command."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if isinstance(status, int):
        os._exit(status)


@contextmanager
def listening_to_ctrl_c() -> Iterator[Interruption]:
    """Handle Ctrl-C within the block, as this module says. Only the main thread hears signals."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    listener = threading.Thread(target=interruption.listen, args=[ours], daemon=True)
    with ours, ExitStack() as closing:
        closing.callback(listener.join)
        closing.enter_context(theirs)
        number = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        closing.callback(signal.set_wakeup_fd, number)
        handler = signal.signal(signal.SIGINT, interruption.on_signal)
        closing.callback(signal.signal, signal.SIGINT, handler)
        closing.callback(interruption.over)
        listener.start()
        _listening[:] = [theirs.close, listener.join]
        yield interruption


def stop_listening() -> None:
    """Stop the thread that listens, before a fork. Signals have their handlers of old again."""
    signal.set_wakeup_fd(-1)
    for stop in _listening:
        stop()
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Signals that end a command which has an end of its own


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM within the block, so that resources are released."""

    def interrupt(*_: object) -> None:
        call_off_abort()
        raise KeyboardInterrupt

    with _handled_by(interrupt, [signal.SIGTERM]):
        yield


def call_off_abort() -> None:
    """Cancel the alarm of Ray, whose handler of SIGTERM aborts the process 3 s later. Call it in
    every handler of SIGTERM: an orderly end may take longer."""
    signal.alarm(0)


@contextmanager
def on_end_signal(end: Callable[[], object]) -> Iterator[None]:
    """Call `end`, on another thread and at once, for SIGTERM and Ctrl-C within the block. Some send
    them twice."""
    _ends.append(end)
    try:
        with _handled_by(lambda *_: call_off_abort(), END_SIGNALS):
            yield
    finally:
        _ends.remove(end)


@contextmanager
def _handled_by(handler: Callable[..., None], numbers: Sequence[int]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
