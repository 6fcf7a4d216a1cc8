"""What jobs made of the lake, asked for again: rates of checkpoints, definitions side by side."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from statistics import median_low
from typing import Any

from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock_jobs.rewards.rates import CheckpointRates, Tally, checkpoint_rates

_HERE = files("penstock_jobs.rewards")
Row = dict[str, Any]


def compare_definitions(lake: Lake, before: str, after: str, tenant: str) -> list[Row]:
    """A row a reward and horizon, over the sessions that both versions have computed."""
    parameters = {"before": before, "after": after}
    return _ask(lake, "compare.sql", frozenset({"rewards"}), parameters, tenant)


def read_rates(
    lake: Lake, version: str, tenant: str, since_us: int | None = None
) -> list[CheckpointRates]:
    """Of each checkpoint, in the order of the times when its sessions began, in the middle; of
    sessions that had several or told none last."""
    parameters = {"version": version, "since_us": since_us}
    rows = _ask(lake, "rates.sql", frozenset({"outcomes"}), parameters, tenant)
    began: defaultdict[str | None, list[datetime]] = defaultdict(list)
    for row in rows:
        began[row["checkpoint"]].append(row["first_ts"])
    middle = {name: median_low(times) for name, times in began.items()}
    found = checkpoint_rates(map(_tally, rows))
    return sorted(found.values(), key=lambda one: (one.checkpoint is None, middle[one.checkpoint]))


def _tally(row: Row) -> Tally:
    return Tally(
        row["checkpoint"],
        row["outcome"],
        row["reason"],
        turns=row["turns"],
        edited=row["edited_turns"],
        answered=row["answered_turns"],
        asked=row["asking_turns"],
        calls=row["tool_calls"],
        invalid_calls=row["invalid_tool_calls"],
    )


def _ask(
    lake: Lake, name: str, views: frozenset[str], parameters: Mapping[str, object], tenant: str
) -> list[Row]:
    sql = _HERE.joinpath(name).read_text(encoding="utf-8")
    found: list[Row] = (
        lake.query(OwnQuery(sql, views, parameters), tenant=tenant).arrow().to_pylist()
    )
    return found
