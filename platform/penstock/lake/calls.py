"""What can be asked of the lake itself: how far it covers the log, what it holds, who keeps it."""

import msgspec

from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake


class PartitionAnswer(msgspec.Struct):
    """How far the lake covers a partition of the log, and which writer moves that on."""

    partition: int
    waiting_bytes: int
    next_offset: int
    writer: str | None
    lease_until: str | None


class SegmentTotals(msgspec.Struct):
    """Of the caller's tenant. `small` are those that merging waits to put together."""

    segments: int
    rows: int
    bytes: int
    small: int


class LeaseAnswer(msgspec.Struct):
    """Work that one process does at a time, and until when it holds it."""

    name: str
    owner: str | None
    until: str


class LakeHealthAnswer(msgspec.Struct):
    snap: int
    committed_at: str
    partitions: list[PartitionAnswer]
    segments: SegmentTotals
    leases: list[LeaseAnswer]


class LakeHealthQuestion(Question):
    """Of now."""


def _health(lake: Lake, caller: Caller, _question: LakeHealthQuestion) -> LakeHealthAnswer:
    from penstock.lake.health import read_health

    return read_health(lake, caller.tenant)


SHOW_LAKE_HEALTH = Call(
    path="/v1/lake/health",
    question=LakeHealthQuestion,
    answer=LakeHealthAnswer,
    work=_health,
    roles=(),
    summary="How far the lake covers the log, and who keeps it in shape",
)

CALLS = [SHOW_LAKE_HEALTH]
