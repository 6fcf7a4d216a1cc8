"""What can be asked of the fleet of a channel."""

import msgspec

from penstock.core.endpoint import Caller, Endpoint, ListRequest, page_of
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.fleet.fleet_status import StandingAnswer
from penstock.registry.fleet.replicas import FleetAnswer, Report, fleet, record_report


class FleetRequest(ListRequest, kw_only=True):
    name: str


class ReportAnswer(msgspec.Struct):
    """How the fleet stands with this report."""

    channel: str
    parts: list[StandingAnswer]


def _fleet(lake: Lake, caller: Caller, request: FleetRequest) -> FleetAnswer:
    whole = fleet(lake.database, lake.settings, caller.tenant, request.name)
    page, after = page_of(whole.replicas, request, lambda replica: replica.replica)
    return msgspec.structs.replace(whole, replicas=list(page), next=after)


def _report(lake: Lake, caller: Caller, report: Report) -> ReportAnswer:
    parts = record_report(lake.database, lake.settings, caller.tenant, report)
    return ReportAnswer(report.name, parts)


SHOW_FLEET = Endpoint(
    "GET /v1/channels/{name}/replicas",
    _fleet,
    ("read", "serve", "promote"),
    "Who serves a channel, and what each has loaded",
)
REPORT_REPLICA = Endpoint(
    "POST /v1/channels/{name}/replicas",
    _report,
    ("serve",),
    "Report what a replica has loaded",
    description="A sidecar does it at each change, and now and then between them.",
    refused={409: None},
)

ENDPOINTS: Endpoints = [SHOW_FLEET, REPORT_REPLICA]
