"""`POST /v1/events`, as described in docs/reference/http.md."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from litestar import MediaType, Request, Response, post
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, RequestBody, Schema

from penstock.access.keys import Authorizer, Grant
from penstock.access.quotas import Quotas
from penstock.backends.http import BodyTooLarge
from penstock.backends.http.openapi import KEY_NEEDED, RefusableOperation, refusals, schema_of
from penstock.backends.http.request_limits import (
    content_encoding,
    cut_off_when_cancelled,
    media_type,
    read_parts,
)
from penstock.core.clock import Clock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.fairness import Holdings
from penstock.core.metrics import Metrics
from penstock.core.settings import MIB, Settings
from penstock.events.bodies import ArrayTooLarge
from penstock.events.event import event_schema, inlined
from penstock.events.near_misses import NearMisses, NearMissSample
from penstock.ingest.decompression import decompress
from penstock.ingest.gateway import Acceptance, Acceptor, GroupCommit
from penstock.ingest.settings import IngestSettings
from penstock.ingest.work_turns import WorkTurns
from penstock.lake.lake import Lake

_NDJSON = "application/x-ndjson"
_WARNINGS_MAX = 20
#: Arrays are held in memory as a whole, and larger ones would delay others.
ARRAY_BYTES_MAX = 16 * MIB


@dataclass
class Gateway:
    """The parts that accept events."""

    settings: Settings
    authorizer: Authorizer
    lake: Lake
    #: Bytes of bodies and events that are not on disk yet.
    inflight: Holdings
    metrics: Metrics
    clock: Clock
    quotas: Quotas
    #: None in a process without the gateway role.
    commits: GroupCommit | None = None
    turns: WorkTurns = field(default_factory=WorkTurns)
    near_misses: NearMissSample = field(default_factory=NearMissSample)

    def acceptor_for(self, grant: Grant) -> Acceptor:
        settings, lake = self.settings, self.lake
        return Acceptor(grant.tenant, settings, lake.log, lake.redactor, self.near_misses)


class Refused(msgspec.Struct):
    """A line that was not accepted, counted from 1."""

    line: int
    error: str


class KeyWarning(msgspec.Struct):
    """A key that nothing reads; `known` was probably meant. `line` is the first one with it."""

    key: str
    known: str
    events: int
    line: int


class Accepted(msgspec.Struct):
    """The result of a body; its accepted lines are on disk."""

    accepted: int
    rejected: list[Refused]
    warnings: list[KeyWarning] | msgspec.UnsetType = msgspec.UNSET


@dataclass
class EventsOperation(RefusableOperation):
    """`POST /v1/events`, whose body is a stream without a type."""

    def __post_init__(self) -> None:
        super().__post_init__()
        lines = Schema(type=OpenAPIType.STRING, description="One event per line.")
        event = schema_of(inlined(event_schema()))
        array = Schema(type=OpenAPIType.ARRAY, items=event)
        forms = {_NDJSON: lines, "application/json": array}
        self.request_body = RequestBody(
            required=True,
            description="Plain, or with `Content-Encoding` gzip or zstd.",
            content={form: OpenAPIMediaType(schema=schema) for form, schema in forms.items()},
        )


@post(
    "/v1/events",
    status_code=200,
    summary="Send events",
    description="NDJSON, or a JSON array; plain, gzip or zstd. Answers when all is on disk.",
    media_type=MediaType.JSON,
    operation_class=EventsOperation,
    responses=refusals(400, 401, 403, 408, 413, 415, 429, 503),
    security=KEY_NEEDED,
)
async def post_events(request: Request[Any, Any, Any], gateway: Gateway) -> Response[Accepted]:
    started = time.perf_counter()
    try:
        with cut_off_when_cancelled():
            answer = await _take_in(request, gateway)
    except PenstockError as error:
        gateway.metrics.add("requests_refused_total", status=str(error.http_status))
        raise
    gateway.metrics.observe("request_seconds", time.perf_counter() - started)
    return Response(answer)


async def _take_in(request: Request[Any, Any, Any], gateway: Gateway) -> Accepted:
    grant = await sender_of(request.headers.get("authorization"), gateway)
    settings = gateway.settings
    limits = settings.room(IngestSettings)
    with gateway.inflight.holding(grant.tenant) as hold:
        sent = await read_parts(request, limits.body_bytes_max, hold)
        encoding = content_encoding(request)
        acceptor = gateway.acceptor_for(grant)
        whole = Acceptance()
        kind = media_type(request)
        async with gateway.turns.of(grant.tenant) as give_turn:
            parts = decompress(sent, encoding, limits.body_decoded_bytes_max)
            held = held_parts(parts, sum(map(len, sent)), hold)
            del sent, parts
            pieces = acceptor.accept(
                held,
                gateway.clock.now_us(),
                ndjson=kind == _NDJSON,
                array_bytes_max=ARRAY_BYTES_MAX,
            )
            try:
                for piece in pieces:
                    whole.add(piece)
                    await give_turn()
            except ArrayTooLarge:
                measure = "for an array after decompression; one event per line may be larger"
                raise BodyTooLarge(limit_bytes=ARRAY_BYTES_MAX, measure=measure) from None
        del held, pieces
        await make_durable(whole, gateway, grant)
    answer = Accepted(whole.accepted, [Refused(bad.line, bad.reason) for bad in whole.rejections])
    if whole.near_misses.counts:
        answer.warnings = _warnings(whole.near_misses)
    return answer


async def sender_of(authorization: str | None, gateway: Gateway) -> Grant:
    """The sender of a request, if its key may send and its tenant has room left."""
    grant = await gateway.authorizer.authorize(authorization, "ingest")
    if gateway.commits is None:
        raise InvalidInput(what="This process", why="it was started without the gateway role")
    gateway.quotas.require(grant.tenant, "events_per_hour", "stored_bytes")
    return grant


async def make_durable(whole: Acceptance, gateway: Gateway, grant: Grant) -> None:
    """Append accepted values to the log, and count them."""
    assert gateway.commits is not None
    if whole.values:
        await gateway.commits.append(whole.values)
    metrics, misses, rejected = gateway.metrics, whole.near_misses, len(whole.rejections)
    for (_, rule), count in whole.redactions.items():
        metrics.add("redactions_total", count, rule=rule)
    gateway.lake.redaction_tally.count(grant.tenant, gateway.clock.now_us(), whole.redactions)
    if misses.counts:
        metrics.add("near_miss_keys_total", sum(misses.counts.values()))
    gateway.lake.tally.count(
        grant.tenant, f"key {grant.key}", "ingest", accepted=whole.accepted, rejected=rejected
    )
    gateway.quotas.count(grant.tenant, "events_per_hour", whole.accepted)
    metrics.add("events_accepted_total", whole.accepted, tenant=grant.tenant)
    metrics.add("events_rejected_total", rejected, tenant=grant.tenant)


def _warnings(misses: NearMisses) -> list[KeyWarning]:
    common = sorted(misses.counts, key=lambda miss: (-misses.counts[miss], miss))
    return [
        KeyWarning(miss.key, miss.known, misses.counts[miss], misses.lines[miss])
        for miss in common[:_WARNINGS_MAX]
    ]


def held_parts(
    parts: Iterator[bytes], sent_size: int, hold: Callable[[int], None]
) -> Iterator[bytes]:
    """Hold memory for the larger of the two forms, so that any allowed body fits if no other is
    there."""
    size = 0
    for part in parts:
        before = max(size, sent_size)
        size += len(part)
        hold(max(size, sent_size) - before)
        yield part


ROUTES = [post_events]
