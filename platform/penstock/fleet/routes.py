"""Fleets over HTTP, as docs/serving.md describes them."""

import msgspec
from litestar.openapi.spec import OpenAPIType, Schema

from penstock.channels.routes import Name
from penstock.checkpoints.routes import HttpRequest, Registry, registry_post
from penstock.fleet.fleet_status import PARTS, STATES, StandingAnswer
from penstock.fleet.replicas import LEFT, Report, record_report
from penstock.http.body import read_document
from penstock.http.openapi import operation_taking

_TEXT_OR_NULL = Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL])
_ReportOperation = operation_taking(
    Report,
    part=Schema(type=OpenAPIType.STRING, enum=list(PARTS)),
    state=Schema(type=OpenAPIType.STRING, enum=[*STATES, LEFT]),
    **dict.fromkeys(("wanted", "loaded", "digest", "problem"), _TEXT_OR_NULL),
)


class ReportAnswer(msgspec.Struct):
    """How the fleet stands with this report."""

    channel: str
    parts: list[StandingAnswer]


@registry_post(
    "/v1/channels/{name:str}/replicas",
    "Report what a replica has loaded",
    _ReportOperation,
    description="A sidecar does it at each change, and now and then between them.",
)
async def post_replica(request: HttpRequest, registry: Registry, name: Name) -> ReportAnswer:
    grant = await registry.authorize(request, "serve")
    body = await read_document(request, Report)
    standings = await registry.call(
        grant.tenant, record_report, registry.settings, grant.tenant, name, body
    )
    return ReportAnswer(name, standings)


ROUTES = [post_replica]
