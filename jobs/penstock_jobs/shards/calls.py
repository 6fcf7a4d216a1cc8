"""What can be asked of shards."""

from typing import Any, Literal

import msgspec

from penstock.checkpoints.lineage import Learner
from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.lake.pages import ListQuestion, Page, page_of
from penstock_jobs.shards.shown_samples import SHOW_SAMPLES


class ShardAnswer(msgspec.Struct):
    id: str
    tenant: str
    name: str
    snapshot: str
    snap: int
    samples: int
    tokens: int
    trainable: int
    bytes: int
    created_at: str
    marked_sessions: int
    #: `dropping`, `dropped` or `erased` where its files are gone.
    gone: str | None = None
    gone_at: str | None = None
    gone_why: str | None = None


class ShardsAnswer(Page):
    """In the order that was asked for."""

    shards: list[ShardAnswer]


class MarkAnswer(msgspec.Struct):
    """A session, and why the shard should hold it no more, or does not hold it."""

    session_id: str
    reason: str


class ShardDetails(msgspec.Struct):
    """`left_out` are a few sessions of each reason for which the manifest counts some."""

    shard: str
    built_at: str
    marks: list[MarkAnswer]
    left_out: list[MarkAnswer]
    trained: list[Learner]
    manifest: dict[str, Any]
    gone: str | None = None
    gone_at: str | None = None
    gone_why: str | None = None


class ShardsQuestion(ListQuestion):
    """All of them, the newest last, or first."""

    order: Literal["oldest", "newest"] = "oldest"


class ShardQuestion(Question):
    """By its id, the beginning of it, or its name."""

    shard: str


def _list(lake: Lake, caller: Caller, question: ShardsQuestion) -> ShardsAnswer:
    from penstock.shards.registered_shards import list_shards, marks_of
    from penstock.terminal.output import facts
    from penstock_jobs.shards.registration import mark_consent

    mark_consent(lake)
    known = list_shards(lake.database, caller.tenant)
    if question.order == "newest":
        known.reverse()
    page, after = page_of(known, question, lambda shard: shard.id)
    shards = []
    for shard in page:
        marked = len(marks_of(lake.database, caller.tenant, shard.id))
        document = facts(shard) | {"marked_sessions": marked}
        shards.append(msgspec.convert(document, ShardAnswer))
    return ShardsAnswer(shards, next=after)


def _show(lake: Lake, caller: Caller, question: ShardQuestion) -> ShardDetails:
    from penstock.checkpoints.lineage import learners
    from penstock.shards.manifest import read_manifest_or_note
    from penstock.shards.registered_shards import find_shard, left_out_of, marks_of
    from penstock.terminal.output import time_of
    from penstock_jobs.shards.registration import mark_consent

    mark_consent(lake)
    shard = find_shard(lake.database, caller.tenant, question.shard)
    mine = (lake.database, caller.tenant, shard.id)
    manifest = read_manifest_or_note(lake.store, shard.folder, shard.id)
    return ShardDetails(
        shard=shard.id,
        built_at=time_of(shard.created_at).isoformat(),
        marks=[MarkAnswer(*mark) for mark in marks_of(*mine)],
        left_out=[MarkAnswer(*each) for each in left_out_of(*mine)],
        trained=learners(*mine),
        manifest=msgspec.to_builtins(manifest),
        gone=shard.gone,
        gone_at=None if shard.gone_at is None else time_of(shard.gone_at).isoformat(),
        gone_why=shard.gone_why,
    )


LIST_SHARDS = Call(
    path="/v1/shards",
    question=ShardsQuestion,
    answer=ShardsAnswer,
    work=_list,
    roles=("read", "train"),
    summary="All shards",
    reads_rows=True,
)
SHOW_SHARD = Call(
    path="/v1/shards/{shard}",
    question=ShardQuestion,
    answer=ShardDetails,
    work=_show,
    roles=("read", "train"),
    summary="A shard: its manifest, what marks it, which checkpoints were trained on it",
    refused={404: "There is no such shard.", 410: "Its files and its manifest are gone."},
    reads_rows=True,
)

CALLS = [LIST_SHARDS, SHOW_SHARD, SHOW_SAMPLES]
