"""Pages of shards: the list, one shard with samples, exclusions and lineage, and its hints."""

from typing import Any

from msgspec import structs

from penstock.core.errors import one_line
from penstock.doors.console.charts import Bar, bar_chart
from penstock.doors.console.figures import count
from penstock.doors.console.page import Content, PageList, Visitor
from penstock.shards.shard import ShardDamaged, ShardGone, ShardMissing, ShardWithdrawn
from penstock_jobs.shards.endpoints import (
    LIST_SHARDS,
    SHOW_SAMPLES,
    SHOW_SHARD,
    SamplesRequest,
    ShardRequest,
    ShardsRequest,
)

PAGES = PageList("penstock_jobs.shards:pages/", roles=("read", "train"), reads_rows=True)
_SHARDS_SHOWN = 50
_MARKS_SHOWN = 50
_HINTS_SHOWN = 20


@PAGES.page("/shards", "Shards", "shards.html.jinja", group="Training", place=2, shortcut="t")
def _list(visitor: Visitor, question: ShardsRequest) -> Content:
    asked = structs.replace(question, limit=_SHARDS_SHOWN, order="newest")
    return {"answer": visitor.call(LIST_SHARDS, asked)}


@PAGES.page("/shards/{shard}", "Shard", "shard.html.jinja")
def _show(visitor: Visitor, request: SamplesRequest) -> Content:
    details = visitor.call(SHOW_SHARD, ShardRequest(shard=request.shard))
    manifest: dict[str, Any] = details.manifest
    excluded: dict[str, int] = manifest["counts"]["excluded"]
    bars = [
        Bar(reason.replace("_", " "), number, "warn")
        for reason, number in sorted(excluded.items(), key=lambda item: (-item[1], item[0]))
    ]
    samples, problem = None, ""
    try:
        samples = visitor.call(SHOW_SAMPLES, request)
    except (ShardDamaged, ShardGone, ShardMissing, ShardWithdrawn) as error:
        problem = one_line(error)
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


@PAGES.page("/shards/{shard}/hints", "Hints", "hints.html.jinja")
def _hints(visitor: Visitor, request: SamplesRequest) -> Content:
    from penstock_jobs.shards.hints.sources import SOURCES

    details = visitor.call(SHOW_SHARD, ShardRequest(shard=request.shard))
    asked = structs.replace(request, limit=_HINTS_SHOWN, hint=request.hint or "any")
    counts: dict[str, int] = details.manifest["counts"]["hints"]
    return {
        "details": details,
        "kinds": {kind: number for kind, number in counts.items() if kind in SOURCES},
        "others": {why: number for why, number in counts.items() if why not in SOURCES},
        "samples": visitor.call(SHOW_SAMPLES, asked),
    }
