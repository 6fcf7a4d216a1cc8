"""Pages of shards: which there are; of one what it holds, what was left out, and its lineage."""

from typing import Any

from penstock.console.charts import Bar, bar_chart
from penstock.console.figures import count
from penstock.console.page import ConsolePage, Content, Visitor
from penstock.lake.desk import Question
from penstock.shards.errors import ShardDamaged, ShardGone, ShardMissing, ShardWithdrawn
from penstock_jobs.shards.calls import (
    LIST_SHARDS,
    SHOW_SAMPLES,
    SHOW_SHARD,
    SamplesQuestion,
    ShardQuestion,
    ShardsQuestion,
)

_SHARDS_SHOWN = 50
_MARKS_SHOWN = 50


class ShardsPage(Question):
    cursor: str | None = None


def _list(visitor: Visitor, question: ShardsPage) -> Content:
    asked = ShardsQuestion(cursor=question.cursor, limit=_SHARDS_SHOWN, order="newest")
    return {"answer": visitor.ask(LIST_SHARDS, asked)}


def _show(visitor: Visitor, question: SamplesQuestion) -> Content:
    details = visitor.ask(SHOW_SHARD, ShardQuestion(shard=question.shard))
    manifest: dict[str, Any] = details.manifest
    excluded: dict[str, int] = manifest["counts"]["excluded"]
    bars = [
        Bar(reason.replace("_", " "), number, "warn")
        for reason, number in sorted(excluded.items(), key=lambda item: (-item[1], item[0]))
    ]
    samples, problem = None, ""
    try:
        samples = visitor.ask(SHOW_SAMPLES, question)
    except (ShardDamaged, ShardGone, ShardMissing, ShardWithdrawn) as error:
        problem = " ".join(str(error).split())
    return {
        "details": details,
        "manifest": manifest,
        "marks": details.marks[:_MARKS_SHOWN],
        "bytes": sum(part["bytes"] for part in manifest["files"]),
        "excluded": sum(excluded.values()),
        "excluded_chart": bar_chart(bars, title="Sessions left out", value_format=count),
        "samples": samples,
        "problem": problem,
    }


_PAGES = "penstock_jobs.shards:pages/"
PAGES = [
    ConsolePage(
        path="/shards",
        title="Shards",
        question=ShardsPage,
        work=_list,
        template=_PAGES + "shards.html.jinja",
        roles=("read", "train"),
        group="Training",
        place=2,
        shortcut="t",
        reads_rows=True,
    ),
    ConsolePage(
        path="/shards/{shard}",
        title="Shard",
        question=SamplesQuestion,
        work=_show,
        template=_PAGES + "shard.html.jinja",
        roles=("read", "train"),
        reads_rows=True,
    ),
]
