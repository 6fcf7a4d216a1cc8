"""What happened, by Penstock and by the simulator."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from statistics import fmean
from typing import Any

from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock_jobs.demo.story import Measured
from penstock_jobs.simulator.truth import SessionTruth

_HERE = files("penstock_jobs.demo")
#: Of the simulated life of users: the horizon of the rewards.
_TEN_MINUTES_S = 600


def measured(lake: Lake, version: str, checkpoint: str, from_us: int, until_us: int) -> Measured:
    """By a version of a definition, of the sessions that began in a while."""
    facts = {
        "version": version,
        "checkpoint": checkpoint,
        "from_us": from_us,
        "until_us": until_us,
    }
    [row] = _ask(lake, "seen", ("rewards", "sessions"), facts)
    return Measured(**row)


def known(truths: Sequence[SessionTruth], checkpoint: str) -> Measured:
    mine = [one for one in truths if one.checkpoint == checkpoint]
    edits = [edit.survival.get(_TEN_MINUTES_S) for one in mine for edit in one.edits]
    said = [turn.dissatisfied for one in mine for turn in one.turns]
    return Measured(
        _mean([kept[0] for kept in edits if kept is not None]),
        _mean([one for one in said if one is not None]),
    )


def scores(lake: Lake) -> Mapping[str, float]:
    """At the suite, by checkpoint."""
    rows = _ask(lake, "scores", ("benchmark_scores",), {})
    return {row["checkpoint"]: row["score"] for row in rows}


def _ask(
    lake: Lake, name: str, views: Sequence[str], facts: Mapping[str, object]
) -> list[dict[str, Any]]:
    sql = _HERE.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    query = OwnQuery(sql, frozenset(views), facts)
    rows: list[dict[str, Any]] = lake.query(query).arrow().to_pylist()
    return rows


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
