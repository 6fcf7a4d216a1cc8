"""Delete files that nobody needs any more."""

from penstock.lake.collection import collect
from penstock.lake.lake import Lake
from penstock.metrics import Metrics


def run(lake: Lake, metrics: Metrics) -> str | None:
    """One round of collection."""
    done = collect(lake)
    deleted = sum(done.replaced.values()) + done.uncommitted
    metrics.add("files_collected_total", 2 * deleted)
    return f"deleted {deleted} files that nobody needs" if deleted else None
