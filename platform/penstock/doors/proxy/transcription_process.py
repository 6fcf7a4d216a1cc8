"""The process that turns the proxy's calls into events: it decodes, masks and packs.

In the answering process this work would delay answers. Frames come over a pipe, which ends with the
proxy, however that ends. Everything sent until then is recorded."""

import asyncio
import itertools
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from penstock.backends.execution.guarded_process import Channel, GuardedProcess, framed
from penstock.doors.proxy.transcription import CallEnd, CallEvents, RecordedCall
from penstock.ingest.recorder.recorder import Recorder, RecorderCounts

_log = logging.getLogger("penstock.proxy")

_MIB = 1024 * 1024
#: Frames that the process has not taken yet. Calls that find no room are dropped.
_WAITING_BYTES_MAX = 64 * _MIB
_RECORDER_BYTES_MAX = 64 * _MIB
_REPORT_SECONDS = 0.1
_RESTART_SECONDS = 1.0
_END_SECONDS_MAX = 10.0
#: Answers pass on first.
_NICE = 5


class RecordingPlan(Struct, tag="plan"):
    service: str
    key: str | None = None
    spool: str | None = None
    tokenizer: str | None = None


class _Came(Struct, tag="came"):
    number: int
    piece: bytes


class _Ended(Struct, tag="ended"):
    number: int
    end: CallEnd
    is_settled: bool
    was_dropped: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RecordingPlan | RecordedCall | _Came | _Ended)


class TranscriptionProcess(asyncio.Protocol):
    """Takes calls from the event loop without blocking it. Calls that find no room are dropped and
    counted."""

    def __init__(self, plan: RecordingPlan) -> None:
        self._plan = plan
        self._process: GuardedProcess | None = None
        self._pipe: asyncio.Transport | None = None
        self._ended = asyncio.Event()
        self._is_closing = False
        self._numbers = itertools.count()
        self._rest = b""
        self.dropped = 0
        self.counts: dict[str, int] = RecorderCounts(0, 0, 0, 0, 0)._asdict()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._process = GuardedProcess(__name__, environment=os.environ)
        pipe, _ = await loop.create_unix_connection(lambda: self, sock=self._process.end)
        self._pipe = pipe
        self._write(self._plan)

    def begin(self, call: RecordedCall) -> None:
        call.number = next(self._numbers)
        self._put(call, call, len(call.request))

    def more(self, call: RecordedCall, piece: bytes) -> None:
        self._put(call, _Came(call.number, piece), len(piece))

    def end(self, call: RecordedCall, end: CallEnd) -> None:
        self._write(_Ended(call.number, end, not end.awaits_weights, call.was_dropped))

    def settle(self, call: RecordedCall, end: CallEnd) -> None:
        self._write(_Ended(call.number, end, is_settled=True, was_dropped=call.was_dropped))

    @property
    def waiting_bytes(self) -> int:
        return self._pipe.get_write_buffer_size() if self._pipe is not None else 0

    async def close(self) -> None:
        self._is_closing = True
        pipe, self._pipe = self._pipe, None
        if pipe is None or self._process is None:
            return
        pipe.write_eof()
        try:
            async with asyncio.timeout(_END_SECONDS_MAX):
                await self._ended.wait()
        except TimeoutError:
            _log.warning("calls that wait to be recorded are lost: the process took too long")
        await asyncio.to_thread(self._process.stop, _END_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipe = None
        self._ended.set()
        if not self._is_closing:
            _log.warning("the recording process ended, and is started again")
            loop = asyncio.get_running_loop()
            loop.call_later(_RESTART_SECONDS, lambda: loop.create_task(self._restart()))

    async def _restart(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)
        if not self._is_closing:
            await self.start()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self.counts = msgspec.json.decode(lines[-1])

    def _put(self, call: RecordedCall, frame: Struct, size: int) -> None:
        if call.was_dropped:
            return
        if self._pipe is None or self.waiting_bytes + size > _WAITING_BYTES_MAX:
            call.was_dropped = True
            self.dropped += 1
        else:
            self._write(frame)

    def _write(self, frame: Struct) -> None:
        if self._pipe is not None:
            self._pipe.writelines(framed(_encoder.encode(frame)))


def _frames(channel: Channel) -> Iterator[Any]:
    with suppress(EOFError):  # the proxy ended, perhaps within a frame
        while True:
            yield _decoder.decode(channel.receive())


def _report(recorder: Recorder, ended: threading.Event, end: socket.socket) -> None:
    last = None
    while not ended.wait(_REPORT_SECONDS):
        if (counts := recorder.counts()) != last:
            last = counts
            try:
                end.sendall(msgspec.json.encode(counts._asdict()) + b"\n")
            except OSError:  # the proxy has ended
                return


def _transcribe(frames: Iterator[Any], events: CallEvents) -> None:
    calls: dict[int, RecordedCall] = {}
    for frame in frames:
        match frame:
            case RecordedCall():
                calls[frame.number] = frame
                _take(events, frame)
            case _Came(number, piece):
                if known := calls.get(number):
                    _take(events, known, piece)
            case _Ended(number, end, is_settled, was_dropped):
                if known := calls.get(number):
                    known.was_dropped |= was_dropped
                    _take(events, known, None, end, is_settled=is_settled)
                    if is_settled:
                        del calls[number]
    for call in calls.values():  # the proxy is gone, and the connections to its clients
        lasted_ms = (time.time_ns() // 1000 - call.began_us) / 1000
        gone = CallEnd(0, is_stream=True, latency_ms=lasted_ms, is_called_off=True)
        _take(events, call, None, gone, is_settled=True)


def _take(
    events: CallEvents,
    call: RecordedCall,
    piece: bytes | None = None,
    end: CallEnd | None = None,
    *,
    is_settled: bool = False,
) -> None:
    try:
        events.take(call, piece, end, is_settled=is_settled)
    except Exception:  # noqa: BLE001  # the next calls must be recorded
        _log.exception("a call was not recorded")
        events.drop(call, "fault")


def main(end: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    frames = _frames(Channel(end))
    plan = next(frames, None)
    if not isinstance(plan, RecordingPlan):
        return
    spool = Path(plan.spool) if plan.spool else None
    recorder = Recorder(
        plan.service, plan.key, source="proxy", spool=spool, memory_bytes_max=_RECORDER_BYTES_MAX
    )
    ended = threading.Event()
    threading.Thread(target=_report, args=(recorder, ended, end), daemon=True).start()
    with recorder:
        _transcribe(frames, CallEvents(recorder, plan.tokenizer))
    ended.set()
