"""The page of metrics, from their catalogue."""

from bench.reference import template
from penstock.core.metrics import CATALOGUE, PREFIX


def metrics_page() -> str:
    lines = []
    for name, metric in CATALOGUE.items():
        by = f" by {', '.join(metric.labels)}" if metric.labels else ""
        kind = metric.kind.__name__.lower()
        lines.append(f"- `{PREFIX}{name}` {kind}{by}: {metric.meaning}\n")
    return template("metrics") + "".join(lines)
