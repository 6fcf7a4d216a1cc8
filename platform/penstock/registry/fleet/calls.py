"""What can be asked of the fleet of a channel."""

import msgspec

from penstock.lake.desk import Call, Caller
from penstock.lake.lake import Lake
from penstock.lake.pages import ListQuestion, page_of
from penstock.registry.fleet.fleet_status import StandingAnswer
from penstock.registry.fleet.replicas import FleetAnswer, Report, fleet, record_report


class FleetQuestion(ListQuestion, kw_only=True):
    name: str


class ReportAnswer(msgspec.Struct):
    """How the fleet stands with this report."""

    channel: str
    parts: list[StandingAnswer]


def _fleet(lake: Lake, caller: Caller, question: FleetQuestion) -> FleetAnswer:
    whole = fleet(lake.database, lake.settings, caller.tenant, question.name)
    page, after = page_of(whole.replicas, question, lambda replica: replica.replica)
    return msgspec.structs.replace(whole, replicas=list(page), next=after)


def _report(lake: Lake, caller: Caller, report: Report) -> ReportAnswer:
    parts = record_report(lake.database, lake.settings, caller.tenant, report)
    return ReportAnswer(report.name, parts)


SHOW_FLEET = Call(
    "GET /v1/channels/{name}/replicas",
    _fleet,
    ("read", "serve", "promote"),
    "Who serves a channel, and what each has loaded",
)
REPORT_REPLICA = Call(
    "POST /v1/channels/{name}/replicas",
    _report,
    ("serve",),
    "Report what a replica has loaded",
    description="A sidecar does it at each change, and now and then between them.",
    refused={409: None},
)

CALLS = [SHOW_FLEET, REPORT_REPLICA]
