"""What OpenAPI says of the registry's routes beyond what their types say."""

from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIType, Schema

from penstock.fleet.fleet_status import PARTS, STATES
from penstock.fleet.replicas import LEFT
from penstock.http.openapi import TEXT, operation_taking, refusals
from penstock.http.problems import Problem

_REFUSALS = {
    400: "The request cannot be used; the detail says why. Nothing was changed.",
    403: "The key has another role.",
    404: "There is no such checkpoint or channel.",
    409: "The registry is in another state than this needs; the detail says in which. Where "
    "another checkpoint was expected, `expected` and `found` name the two. Nothing was changed.",
    422: "The gate does not say PASS, and `verdict` is what it says; or the files have another "
    "digest. Nothing was changed.",
}
_WHOLE = Schema(type=OpenAPIType.INTEGER)
_TRUTH = Schema(type=OpenAPIType.BOOLEAN)
_SHARE = Schema(type=OpenAPIType.NUMBER, exclusive_minimum=0, exclusive_maximum=1)
_TEXT_OR_NULL = Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL])


class ConflictProblem(Problem, kw_only=True):
    """A compare-and-swap found something else: which checkpoint, at which version."""

    expected: str | None
    found: str | None
    version: int


class GateProblem(Problem, kw_only=True):
    """The gate did not say PASS: its document, whole."""

    outcome: str
    verdict: dict[str, Any]
    verdict_id: str


#: The answer to who has it already.
UNCHANGED = {304: ResponseSpec(None, description="As `If-None-Match` says that it is known.")}


def registry_refusals(*statuses: int) -> dict[int, ResponseSpec]:
    return refusals(*statuses, said=_REFUSALS)


def promotion_refusals(*statuses: int) -> dict[int, ResponseSpec]:
    """Whose conflicts and verdicts are fields."""
    kinds: dict[int, type[Problem]] = {409: ConflictProblem, 422: GateProblem}
    return refusals(*statuses, said=_REFUSALS, kinds=kinds)


RegisterOperation = operation_taking(
    ["name", "uri", "digest"],
    name=TEXT,
    uri=TEXT,
    digest=TEXT,
    parent=TEXT,
    form=Schema(type=OpenAPIType.STRING, enum=["whole", "delta"]),
    shards=Schema(type=OpenAPIType.ARRAY, items=TEXT),
    note=TEXT,
    look=_TRUTH,
)
PromoteOperation = operation_taking(
    ["checkpoint", "reason"],
    checkpoint=TEXT,
    reason=TEXT,
    expect=_TEXT_OR_NULL,
    expect_version=_WHOLE,
    share=_SHARE,
    override=_TRUTH,
)
RollbackOperation = operation_taking(
    ["reason"], reason=TEXT, to=TEXT, expect=_TEXT_OR_NULL, expect_version=_WHOLE
)
ReleaseOperation = operation_taking(["reason"], reason=TEXT)
ReportOperation = operation_taking(
    ["replica", "state", "sidecar"],
    replica=TEXT,
    part=Schema(type=OpenAPIType.STRING, enum=list(PARTS)),
    state=Schema(type=OpenAPIType.STRING, enum=[*STATES, LEFT]),
    sidecar=TEXT,
    wanted=_TEXT_OR_NULL,
    version=_WHOLE,
    loaded=_TEXT_OR_NULL,
    digest=_TEXT_OR_NULL,
    problem=_TEXT_OR_NULL,
)
