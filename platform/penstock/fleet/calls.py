"""What can be asked of the fleet of a channel."""

import msgspec

from penstock.checkpoints.calls import refused_for
from penstock.fleet.replicas import FleetAnswer, fleet
from penstock.lake.desk import Call, Caller
from penstock.lake.lake import Lake
from penstock.lake.pages import ListQuestion, page_of


class FleetQuestion(ListQuestion, kw_only=True):
    name: str


def _fleet(lake: Lake, caller: Caller, question: FleetQuestion) -> FleetAnswer:
    whole = fleet(lake.database, lake.settings, caller.tenant, question.name)
    page, after = page_of(whole.replicas, question, lambda replica: replica.replica)
    return msgspec.structs.replace(whole, replicas=list(page), next=after)


SHOW_FLEET = Call(
    path="/v1/channels/{name}/replicas",
    question=FleetQuestion,
    answer=FleetAnswer,
    work=_fleet,
    roles=("read", "serve", "promote"),
    summary="Who serves a channel, and what each has loaded",
    refused=refused_for(404),
)

CALLS = [SHOW_FLEET]
