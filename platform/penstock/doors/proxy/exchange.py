"""A request and its answer, on their way through the proxy."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.core.errors import PenstockError, one_line
from penstock.doors.proxy.chat_completions import RequestRefused
from penstock.doors.proxy.continuation import Continuations
from penstock.doors.proxy.dialogue import HEADER_PREFIX, ModelApi, Target
from penstock.doors.proxy.engine import (
    EngineKind,
    EngineRequest,
    EventCutter,
    client_answer,
    data_of,
    engine_request,
)
from penstock.doors.proxy.known_engine import KnownEngine, Weights, WeightSamples
from penstock.doors.proxy.transcription import CallEnd, RecordedCall
from penstock.doors.proxy.transcription_process import TranscriptionProcess
from penstock.doors.proxy.translation import TRANSLATED, KeptResponses, Translation, refusal
from penstock.doors.proxy.upstream import (
    AnswerHead,
    Headers,
    Upstream,
    UpstreamBroken,
    UpstreamConnection,
    UpstreamUnreachable,
)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_MIB = 1024 * 1024
#: A larger request is passed on piece by piece, and not recorded.
REQUEST_BYTES_MAX = 64 * _MIB
REQUESTS_BYTES_MAX = 256 * _MIB
#: Bytes of an answer that are handed over together to be recorded.
_PIECE_BYTES = 16 * 1024
_EVENT_BYTES_MAX = 4 * _MIB
_ENCODED = b"content-encoding"
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
     b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)  # fmt: skip


@dataclass(slots=True)
class Exchanges:
    upstream: Upstream
    engine: KnownEngine
    transcription: TranscriptionProcess
    weights: WeightSamples
    kept: KeptResponses = field(default_factory=KeptResponses)
    continuations: Continuations = field(default_factory=Continuations)
    requests_bytes: int = 0
    open: int = 0
    calls: int = 0
    unrecorded: int = 0


class Exchange:
    def __init__(
        self, shared: Exchanges, target: Target, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._shared, self._target = shared, target
        self._method: str = scope["method"]
        self._headers: Headers = passed_on(scope["headers"])
        self._receive, self._send = receive, send
        self._began_s, self._began_us = time.monotonic(), time.time_ns() // 1000
        self._first_s: float | None = None
        self._connection: UpstreamConnection | None = None
        self._call: RecordedCall | None = None
        self._request = EngineRequest(b"")
        #: Of a call in another protocol than the engine's own.
        self._translation: Translation | None = None
        self._branch_reason: str | None = None
        self._before: Weights | None = None
        self._status = 0
        self._is_stream = False
        self._is_gone = False
        self._has_begun = False

    async def run(self) -> None:
        self._shared.open += 1
        problem: str | None = None
        watch: asyncio.Task[None] | None = None
        try:
            body, is_whole = await self._body()
            if self._is_gone:
                return
            await self._prepare(body, is_whole=is_whole)
            # A whole request is read already, so only the client's end can come now.
            watch = asyncio.create_task(self._watch()) if is_whole else None
            await self._forward(body, is_whole=is_whole)
        except RequestRefused as error:
            await self._refuse(body, error)
        except (UpstreamUnreachable, UpstreamBroken) as error:
            problem = None if self._is_gone else one_line(error)
            await self._fail(error)
        finally:
            if watch is not None:
                watch.cancel()
            self._shared.requests_bytes -= len(self._request.body)
            self._shared.open -= 1
            if self._connection is not None:
                self._connection.close() if self._is_gone else self._connection.release()
            if self._call is not None:
                await self._end(self._call, problem)

    async def _body(self) -> tuple[bytes, bool]:
        parts, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._is_gone = True
                return b"", True
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if not message.get("more_body"):
                return (parts[0] if len(parts) == 1 else b"".join(parts)), True
            room = REQUESTS_BYTES_MAX - self._shared.requests_bytes
            if size > min(REQUEST_BYTES_MAX, room):
                return b"".join(parts), False

    async def _prepare(self, body: bytes, *, is_whole: bool) -> None:
        self._request, size = EngineRequest(body), len(body)
        self._shared.requests_bytes += size
        api = self._target.api
        if api is None:
            return
        self._shared.calls += 1
        encoded = any(name == _ENCODED for name, _ in self._headers)
        if encoded or not is_whole:
            self._shared.unrecorded += 1
            return
        kind, asks = await self._shared.engine.kind(self._headers), api
        if api in TRANSLATED and kind is not EngineKind.NONE:
            self._translation, asks = Translation(api, body, self._shared.kept), ModelApi.CHAT
            self._headers = with_engine_login(self._headers)
        self._call = RecordedCall(api, asks, self._target.labels, body, kind, self._began_us)
        if kind is not EngineKind.NONE:
            self._call.sampling = self._shared.engine.sampling
        self._shared.transcription.begin(self._call)
        if self._translation is None:
            self._request = engine_request(kind, api, body)
        else:
            chat = await self._chat(self._translation, kind)
            self._request = EngineRequest(chat, kind=kind)
        self._shared.requests_bytes += len(self._request.body) - size
        if kind is not EngineKind.NONE:
            self._before = await self._shared.weights.before()
        self._headers = [each for each in self._headers if each[0] != b"accept-encoding"]
        self._headers.append((b"accept-encoding", b"identity"))

    async def _chat(self, translation: Translation, kind: EngineKind) -> bytes:
        ask = self._shared.engine.ask if kind is EngineKind.VLLM else None
        prompt = await self._shared.continuations.prompt(translation.chat, ask)
        self._branch_reason = prompt.reason
        return translation.body(kind, prompt.ids)

    async def _refuse(self, body: bytes, error: RequestRefused) -> None:
        api = self._target.api
        assert api is not None
        labels, none = self._target.labels, EngineKind.NONE
        self._call = RecordedCall(api, api, labels, body, none, self._began_us)
        self._shared.transcription.begin(self._call)
        self._status, problem = refusal(api, error)
        self._note(problem)
        await send_bytes(self._send, self._status, problem)

    async def _forward(self, body: bytes, *, is_whole: bool) -> None:
        headers = [each for each in self._headers if each[0] not in (b"host", b"content-length")]
        headers = [each for each in headers if each[0] != b"expect"]
        sized = next((value for name, value in self._headers if name == b"content-length"), None)
        content = self._request.body
        if not is_whole and sized is None:
            headers.append((b"transfer-encoding", b"chunked"))
            content = _chunk(content)
        elif not is_whole:
            headers.append((b"content-length", sized or b"0"))
        elif content or sized is not None:
            headers.append((b"content-length", str(len(content)).encode()))
        connection = self._connection = await self._shared.upstream.request(
            self._method, self._path, headers, content, whole=is_whole
        )
        if self._is_gone:
            connection.abort()
        if not is_whole:
            await self._send_rest(connection, chunked=sized is None)
        await self._answer(connection, await connection.head())

    @property
    def _path(self) -> bytes:
        return self._target.path if self._translation is None else ModelApi.CHAT.encode()

    async def _send_rest(self, connection: UpstreamConnection, *, chunked: bool) -> None:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._is_gone = True
                connection.abort()
                return
            more = message.get("more_body", False)
            if part := message.get("body", b""):
                await connection.send_more(_chunk(part) if chunked else part)
        if chunked:
            await connection.send_more(b"0\r\n\r\n")

    async def _answer(self, connection: UpstreamConnection, head: AnswerHead) -> None:
        self._status = head.status
        self._is_stream = b"text/event-stream" in head.value(b"content-type")
        encoded = head.value(_ENCODED) not in (b"", b"identity")
        if self._call is not None and encoded:  # against our accept-encoding
            self._shared.unrecorded += 1
            self._call.was_dropped = True
        if self._translation is not None:
            await self._translated(connection, head, self._translation)
            return
        hides = bool(self._request.hidden) and head.status < 400 and not encoded
        if hides and not self._is_stream:
            await self._hidden_whole(connection, head)
            return
        await self._start(head, passed_on(head.headers))
        cutter = EventCutter(_EVENT_BYTES_MAX) if hides else None
        while piece := await connection.read():
            self._note(piece)
            if cutter is not None:
                piece = b"".join(map(self._shown, cutter.cut(piece)))
            if piece:
                await self._send_piece(piece)
        rest = cutter.rest() if cutter is not None else b""
        await self._send({"type": "http.response.body", "body": rest})

    async def _hidden_whole(self, connection: UpstreamConnection, head: AnswerHead) -> None:
        content = client_answer(self._request, await self._read(connection)) or b""
        headers = [each for each in passed_on(head.headers) if each[0] != b"content-length"]
        headers.append((b"content-length", str(len(content)).encode()))
        await self._start(head, headers)
        await self._send({"type": "http.response.body", "body": content})

    async def _read(self, connection: UpstreamConnection) -> bytes:
        parts = []
        while piece := await connection.read():
            self._note(piece)
            parts.append(piece)
        return b"".join(parts)

    async def _translated(
        self, connection: UpstreamConnection, head: AnswerHead, translation: Translation
    ) -> None:
        if not self._is_stream or head.status >= 400:
            body = await self._read(connection)
            if head.status < 400:
                whole = translation.whole(body)
                self._shared.continuations.add(translation.chat, translation.draft)
                await send_bytes(self._send, head.status, whole)
            else:
                await send_bytes(self._send, *translation.failure(head.status, body))
            return
        await self._start(head, [(b"content-type", b"text/event-stream; charset=utf-8")])
        cutter = EventCutter(_EVENT_BYTES_MAX)
        while piece := await connection.read():
            self._note(piece)
            for event in cutter.cut(piece):
                start, end = data_of(event)
                if event[start : start + 1] == b"{" and (
                    shown := translation.event(event[start:end])
                ):
                    await self._send_piece(shown)
        rest = translation.end()
        # The client may go on as soon as it has the end.
        self._shared.continuations.add(translation.chat, translation.draft)
        await self._send({"type": "http.response.body", "body": rest})

    def _shown(self, event: bytes) -> bytes:
        start, end = data_of(event)
        if event[start : start + 1] != b"{":
            return event
        data = event[start:end]
        shown = client_answer(self._request, data)
        if shown is data:
            return event
        return b"" if shown is None else event[:start] + shown + event[end:]

    def _note(self, piece: bytes) -> None:
        if self._first_s is None:
            self._first_s = time.monotonic()
        call = self._call
        if call is not None and not call.was_dropped:
            call.pieces.append(piece)
            call.bytes += len(piece)
            if call.bytes >= _PIECE_BYTES:
                self._hand_over(call)

    def _hand_over(self, call: RecordedCall) -> None:
        if call.pieces:
            self._shared.transcription.more(call, b"".join(call.pieces))
            call.pieces, call.bytes = [], 0

    async def _start(self, head: AnswerHead, headers: Headers) -> None:
        self._has_begun = True
        start = {"type": "http.response.start", "status": head.status, "headers": headers}
        await self._send(start)

    async def _send_piece(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._connection is not None:
            self._connection.abort("the client closed the connection")

    async def _fail(self, error: PenstockError) -> None:
        """Answer with an error. If the answer has begun, break it off: its client sees a loss."""
        if self._is_gone:
            return
        if self._has_begun:
            raise error
        await send_json(self._send, 502, _problem(self._target.api, one_line(error)))

    async def _end(self, call: RecordedCall, problem: str | None) -> None:
        now_s = time.monotonic()
        self._hand_over(call)
        # The next call may continue this answer at once, so its end is recorded first.
        awaits = call.engine is not EngineKind.NONE
        first_s = self._first_s
        end = CallEnd(
            self._status,
            self._is_stream,
            latency_ms=1000 * (now_s - self._began_s),
            ttft_ms=None if first_s is None else 1000 * (first_s - self._began_s),
            is_called_off=self._is_gone,
            problem=problem,
            awaits_weights=awaits,
            branch_reason=self._branch_reason,
        )
        self._shared.transcription.end(call, end)
        if awaits:
            end.weights = await self._shared.weights.of_answer(self._before)
            self._shared.transcription.settle(call, end)


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Drop the headers that belong to one connection, and those meant for the proxy."""
    given = list(headers)
    listed = {
        name.strip().lower()
        for header, value in given
        if header == b"connection"
        for name in value.split(b",")
    }
    dropped = _HOP_BY_HOP | listed
    return [
        (name, value)
        for name, value in given
        if name not in dropped and not name.startswith(HEADER_PREFIX)
    ]


def with_engine_login(headers: Headers) -> Headers:
    """Say a key of Anthropic's clients as engines read it."""
    known = dict(headers)
    if b"authorization" in known or b"x-api-key" not in known:
        return headers
    return [*headers, (b"authorization", b"Bearer " + known[b"x-api-key"])]


async def send_json(send: Send, status: int, document: object) -> None:
    await send_bytes(send, status, msgspec.json.encode(document))


async def send_bytes(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)


def _problem(api: ModelApi | None, message: str) -> dict[str, Any]:
    error = {"type": "api_error", "message": message}
    if api is ModelApi.MESSAGES:
        return {"type": "error", "error": error}
    return {"error": error | {"param": None, "code": "upstream_unreachable"}}
