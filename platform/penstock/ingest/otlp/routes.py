"""`POST /v1/traces`, `/v1/logs` and `/v1/metrics`, as in OTLP/HTTP and docs/connect.md."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgspec
from litestar import Request, Response, post
from litestar.exceptions import HTTPException
from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    RequestBody,
    Schema,
)

from penstock.backends.http import BodyTooLarge
from penstock.backends.http.openapi import KEY_NEEDED, RefusableOperation, refusals, schema_of
from penstock.backends.http.request_limits import (
    content_encoding,
    cut_off_when_cancelled,
    media_type,
    read_parts,
)
from penstock.core.errors import PenstockError, one_line
from penstock.ingest.decompression import BodyUnreadable, decompress
from penstock.ingest.gateway import CHUNK_BYTES, Acceptance, Acceptor
from penstock.ingest.otlp import json_form, protobuf
from penstock.ingest.otlp.conversion import TOO_DEEP, Converted, TelemetryBatch
from penstock.ingest.otlp.log_batch import SessionNotes
from penstock.ingest.routes import ARRAY_BYTES_MAX, Gateway, held_parts, make_durable, sender_of
from penstock.ingest.settings import IngestSettings
from penstock.ingest.work_turns import GiveTurn


class FormUnknown(
    PenstockError,
    exit_status=2,
    http_status=415,
    http_headers={"Accept-Post": "application/x-protobuf, application/json"},
):
    """OTLP is not accepted as {form}; send application/x-protobuf or application/json, for example
    with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf or http/json."""


PROTOBUF, JSON = "application/x-protobuf", "application/json"
_REASONS_MAX = 3
_NAMES_MAX, _NAME_CHARS_MAX = 20, 100
_NOTES = SessionNotes()
_GRPC_CODES = {400: 3, 401: 16, 403: 7, 408: 4, 413: 8, 415: 3, 429: 8, 503: 14}
_GRPC_UNKNOWN = 2

Signal = Literal["spans", "log records", "data points"]


class Status(msgspec.Struct):
    """The reason of a refused request, in OTLP's form."""

    code: int
    message: str


class PartialSuccess(msgspec.Struct, rename="camel", omit_defaults=True):
    """The number of refused items, as text because JSON has no 64-bit numbers, and why. Unknown
    metrics are named without a number."""

    rejected_spans: str | None = None
    rejected_log_records: str | None = None
    rejected_data_points: str | None = None
    error_message: str | None = None


class ExportAnswer(msgspec.Struct, rename="camel", omit_defaults=True):
    """Everything is on disk, except for what `partialSuccess` names."""

    partial_success: PartialSuccess | None = None


@dataclass
class ExportOperation(RefusableOperation):
    def __post_init__(self) -> None:
        super().__post_init__()
        binary = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))
        document = OpenAPIMediaType(schema=Schema(type=OpenAPIType.OBJECT))
        self.request_body = RequestBody(
            required=True,
            description="Plain, or with `Content-Encoding` gzip or zstd.",
            content={PROTOBUF: binary, JSON: document},
        )
        for status, answer in (self.responses or {}).items():
            if isinstance(answer, OpenAPIResponse):
                kind = ExportAnswer if status == "200" else Status
                more = {JSON: OpenAPIMediaType(schema=schema_of(msgspec.json.schema(kind)))}
                answer.content = {**(answer.content or {}), PROTOBUF: binary, **more}


@dataclass
class _Outcome:
    converted: int = 0
    ignored: int = 0
    rejected: int = 0
    reasons: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    acceptance: Acceptance = field(default_factory=Acceptance)

    def refuse(self, place: int, why: str) -> None:
        self.rejected += 1
        if len(self.reasons) < _REASONS_MAX:
            self.reasons.append(f"number {place}: {why}")

    def ignore(self, name: str) -> None:
        self.ignored += 1
        if name and len(self.unknown) < _NAMES_MAX:
            self.unknown.add(name[:_NAME_CHARS_MAX])

    @property
    def message(self) -> str:
        more = self.rejected - len(self.reasons)
        said = [*self.reasons, *[f"and {more} more"] * bool(more)]
        if self.unknown:
            said.append(f"nothing is compared by {', '.join(sorted(self.unknown))}")
        return "; ".join(said)


_export = partial(
    post,
    status_code=200,
    description="Protobuf or JSON; plain, gzip or zstd. Answers when all is on disk.",
    operation_class=ExportOperation,
    responses=refusals(400, 401, 403, 408, 413, 415, 429, 503),
    security=KEY_NEEDED,
)


@_export("/v1/traces", summary="Send spans of coding agents, as OTLP")
async def post_traces(request: Request[Any, Any, Any], gateway: Gateway) -> Response[bytes]:
    return await _answer(request, gateway, "spans")


@_export("/v1/logs", summary="Send log records of coding agents, as OTLP")
async def post_logs(request: Request[Any, Any, Any], gateway: Gateway) -> Response[bytes]:
    return await _answer(request, gateway, "log records")


@_export("/v1/metrics", summary="Send metrics of coding agents, as OTLP")
async def post_metrics(request: Request[Any, Any, Any], gateway: Gateway) -> Response[bytes]:
    return await _answer(request, gateway, "data points")


async def _answer(
    request: Request[Any, Any, Any], gateway: Gateway, signal: Signal
) -> Response[bytes]:
    form = media_type(request)
    try:
        with cut_off_when_cancelled():
            outcome = await _take_in(request, gateway, signal, form)
    except (PenstockError, HTTPException) as error:
        status = error.http_status if isinstance(error, PenstockError) else error.status_code
        gateway.metrics.add("requests_refused_total", status=str(status))
        if form not in (PROTOBUF, JSON):
            raise
        return _refusal(error, status, form)
    for name in ("converted", "ignored", "rejected"):
        number = getattr(outcome, name)
        gateway.metrics.add("otlp_records_total", number, signal=signal, outcome=name)
    if form == PROTOBUF:
        content = protobuf.encode_partial_success(outcome.rejected, outcome.message)
        return Response(content, media_type=PROTOBUF)
    return Response(msgspec.json.encode(_json_answer(outcome, signal)), media_type=JSON)


def _json_answer(outcome: _Outcome, signal: Signal) -> ExportAnswer:
    if not outcome.message:
        return ExportAnswer()
    refused = {f"rejected_{signal.replace(' ', '_')}": str(outcome.rejected)}
    return ExportAnswer(PartialSuccess(error_message=outcome.message, **refused))


def _refusal(error: PenstockError | HTTPException, status: int, form: str) -> Response[bytes]:
    code = _GRPC_CODES.get(status, _GRPC_UNKNOWN)
    if isinstance(error, PenstockError):
        message, headers = one_line(error), error.http_headers
    else:
        message, headers = error.detail, error.headers or {}
    if form == PROTOBUF:
        content = protobuf.encode_status(code, message)
    else:
        content = msgspec.json.encode(Status(code, message))
    return Response(content, status_code=status, media_type=form, headers=headers)


async def _take_in(
    request: Request[Any, Any, Any], gateway: Gateway, signal: Signal, form: str
) -> _Outcome:
    grant = await sender_of(_authorization(request), gateway)
    if form not in (PROTOBUF, JSON):
        raise FormUnknown(form=form[:64] or "none")
    limits = gateway.settings.room(IngestSettings)
    with gateway.inflight.holding(grant.tenant) as hold:
        sent = await read_parts(request, limits.body_bytes_max, hold)
        encoding = content_encoding(request)
        async with gateway.turns.of(grant.tenant) as give_turn:
            parts = []
            decoded = decompress(sent, encoding, limits.body_decoded_bytes_max)
            for part in held_parts(decoded, sum(map(len, sent)), hold):
                parts.append(part)
                await give_turn()
            body = b"".join(parts)
            del sent, parts, decoded
            if form == JSON:
                _hold_values(body, hold, limits.tenant_inflight_bytes_max)
            now_us = gateway.clock.now_us()
            outcome = _Outcome()
            acceptor = gateway.acceptor_for(grant)
            lines = _Lines(acceptor, give_turn, now_us, outcome)
            made_max = max(len(body), limits.body_decoded_bytes_max)
            for each in _converted(
                body, signal, form, TelemetryBatch(now_us, grant.tenant, _NOTES)
            ):
                await lines.add(each)
                if lines.made_bytes > made_max:
                    raise BodyTooLarge(limit_bytes=made_max, measure="as events")
                await give_turn()
            await lines.flush()
        del body, lines
        await make_durable(outcome.acceptance, gateway, grant)
    return outcome


def _authorization(request: Request[Any, Any, Any]) -> str | None:
    header = request.headers.get("authorization")
    return header.replace("%20", " ", 1) if header is not None else None


def _hold_values(body: bytes, hold: Callable[[int], None], bytes_max: int) -> None:
    if len(body) > ARRAY_BYTES_MAX:
        measure = "for JSON after decompression; protobuf may have more"
        raise BodyTooLarge(limit_bytes=ARRAY_BYTES_MAX, measure=measure)
    size = json_form.memory_bytes(body)
    if size + len(body) > bytes_max:
        measure = "of memory that its JSON takes once it is read; protobuf takes less"
        raise BodyTooLarge(limit_bytes=bytes_max, measure=measure)
    hold(size)


def _converted(
    body: bytes, signal: Signal, form: str, batch: TelemetryBatch
) -> Iterator[Converted]:
    reader = protobuf if form == PROTOBUF else json_form
    try:
        if signal == "spans":
            yield from batch.spans(reader.read_spans(body))
        elif signal == "log records":
            yield from batch.logs(reader.read_logs(body))
        else:
            yield from batch.metrics(reader.read_metrics(body))
    except ValueError as error:
        raise BodyUnreadable(why=f"it is not OTLP: {error}") from None


class _Lines:
    def __init__(
        self, acceptor: Acceptor, give_turn: GiveTurn, received_us: int, outcome: _Outcome
    ) -> None:
        self._acceptor = acceptor
        self._give_turn = give_turn
        self._received_us = received_us
        self._outcome = outcome
        self._lines: list[bytes] = []
        #: By line: the number of its span or record.
        self._places: list[int] = []
        self._refused: set[int] = set()
        self._waiting_bytes = 0
        self.made_bytes = 0

    async def add(self, converted: Converted) -> None:
        lines: list[bytes] = []
        try:
            lines = [msgspec.json.encode(event) for event in converted.events]
        except RecursionError:
            converted.why = TOO_DEEP
        if converted.why is not None:
            self._outcome.refuse(converted.place, converted.why)
        elif converted.is_known:
            self._outcome.converted += 1
        else:
            self._outcome.ignore(converted.name)
        for line in lines:
            self._lines.append(line)
            self._places.append(converted.place)
            self._waiting_bytes += len(line)
            self.made_bytes += len(line)
        if self._waiting_bytes > CHUNK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        if not self._lines:
            return
        first = len(self._places) - len(self._lines) + 1
        body = [b"\n".join(self._lines)]
        for piece in self._acceptor.accept(body, self._received_us, first, ndjson=True):
            for rejection in piece.rejections:
                place = self._places[rejection.line - 1]
                if place not in self._refused:
                    self._refused.add(place)
                    self._outcome.converted -= 1
                    self._outcome.refuse(place, rejection.reason)
            self._outcome.acceptance.add(piece)
            await self._give_turn()
        self._lines, self._waiting_bytes = [], 0


ROUTES = [post_traces, post_logs, post_metrics]
