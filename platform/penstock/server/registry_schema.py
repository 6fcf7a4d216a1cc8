"""What OpenAPI says of the registry's routes beyond what their types say."""

from dataclasses import dataclass
from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema

from penstock.fleet.fleet import PARTS, STATES
from penstock.fleet.replicas import LEFT
from penstock.server.problems import ConflictProblem, GateProblem, Problem
from penstock.server.schema import RefusableOperation, refusals

_REFUSALS = {
    400: "The request cannot be used; the detail says why. Nothing was changed.",
    403: "The key has another role.",
    404: "There is no such checkpoint or channel.",
    409: "The registry is in another state than this needs; the detail says in which. Where "
    "another checkpoint was expected, `expected` and `found` name the two. Nothing was changed.",
    422: "The gate does not say PASS, and `verdict` is what it says; or the files have another "
    "digest. Nothing was changed.",
}
_TEXT = Schema(type=OpenAPIType.STRING)
_WHOLE = Schema(type=OpenAPIType.INTEGER)
_TRUTH = Schema(type=OpenAPIType.BOOLEAN)
_SHARE = Schema(type=OpenAPIType.NUMBER, exclusive_minimum=0, exclusive_maximum=1)
_TEXT_OR_NULL = Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL])


#: The answer to who has it already.
UNCHANGED = {304: ResponseSpec(None, description="As `If-None-Match` says that it is known.")}


def registry_refusals(*statuses: int) -> dict[int, ResponseSpec]:
    return refusals(*statuses, said=_REFUSALS)


def promotion_refusals(*statuses: int) -> dict[int, ResponseSpec]:
    """Whose conflicts and verdicts are fields."""
    kinds: dict[int, type[Problem]] = {409: ConflictProblem, 422: GateProblem}
    return refusals(*statuses, said=_REFUSALS, kinds=kinds)


def taking(required: list[str], **properties: Schema) -> type[Operation]:
    """An operation with such a body, which is read as it comes and not by a type."""

    @dataclass
    class Taking(RefusableOperation):
        def __post_init__(self) -> None:
            super().__post_init__()
            schema = Schema(
                type=OpenAPIType.OBJECT, required=required, properties=dict[str, Any](properties)
            )
            content = {"application/json": OpenAPIMediaType(schema=schema)}
            self.request_body = RequestBody(required=True, content=content)

    return Taking


RegisterOperation = taking(
    ["name", "uri", "digest"],
    name=_TEXT,
    uri=_TEXT,
    digest=_TEXT,
    parent=_TEXT,
    form=Schema(type=OpenAPIType.STRING, enum=["whole", "delta"]),
    shards=Schema(type=OpenAPIType.ARRAY, items=_TEXT),
    note=_TEXT,
    look=_TRUTH,
)
PromoteOperation = taking(
    ["checkpoint", "reason"],
    checkpoint=_TEXT,
    reason=_TEXT,
    expect=_TEXT_OR_NULL,
    expect_version=_WHOLE,
    share=_SHARE,
    override=_TRUTH,
)
RollbackOperation = taking(
    ["reason"], reason=_TEXT, to=_TEXT, expect=_TEXT_OR_NULL, expect_version=_WHOLE
)
ReleaseOperation = taking(["reason"], reason=_TEXT)
ReportOperation = taking(
    ["replica", "state", "sidecar"],
    replica=_TEXT,
    part=Schema(type=OpenAPIType.STRING, enum=list(PARTS)),
    state=Schema(type=OpenAPIType.STRING, enum=[*STATES, LEFT]),
    sidecar=_TEXT,
    wanted=_TEXT_OR_NULL,
    version=_WHOLE,
    loaded=_TEXT_OR_NULL,
    digest=_TEXT_OR_NULL,
    problem=_TEXT_OR_NULL,
)
