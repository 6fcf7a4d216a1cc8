"""What can be asked of the gate of no channel."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.gate.power import PowerPlan


class PlansAnswer(msgspec.Struct):
    plans: list[PowerPlan]


Attempts = Annotated[int, Meta(ge=1, le=64)]
Tasks = Annotated[int, Meta(ge=10, le=2_000)]
Share = Annotated[float, Meta(ge=0, le=1)]


class PlanRequest(Request):
    """`policy` is a text in TOML; `difference` says how much better the candidate is in truth."""

    suite: str
    policy: str
    checkpoints: list[str] = []  # noqa: RUF012  # msgspec copies it
    attempts: Annotated[list[Attempts], Meta(max_length=8)] = []  # noqa: RUF012
    tasks: Annotated[list[Tasks], Meta(max_length=8)] = []  # noqa: RUF012
    difference: float = 0.0
    errors: Share | None = None
    unscored: Share | None = None


def _plan(lake: Lake, caller: Caller, request: PlanRequest) -> PlansAnswer:
    from penstock.registry.gate.policy import parse
    from penstock.registry.gate.power import plan_power

    fields = msgspec.structs.asdict(request)
    suite, policy = fields.pop("suite"), parse(fields.pop("policy"), "the policy")
    return PlansAnswer(plan_power(lake.database, caller.tenant, suite, policy, **fields))


PLAN_POWER = Endpoint(
    "POST /v1/suites/{suite}/plan",
    _plan,
    ("read", "promote"),
    "How likely a candidate passes a policy; nothing is changed",
    refused={404: "There is no such checkpoint."},
    reads_rows=True,
)

ENDPOINTS: Endpoints = [PLAN_POWER]
