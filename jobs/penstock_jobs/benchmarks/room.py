"""The room of benchmarks."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.core.room import Room, items, parts
from penstock.core.settings import RoomSettings


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings(RoomSettings):
    """The names in the environment of attempts."""

    VARIABLES: ClassVar = frozenset({
        "attempt", "check", "checkpoint", "edited", "model_url", "prompt_file", "report",
        "result", "seed", "variant", "session", "suite", "task",
    })  # fmt: skip


ROOM = Room(
    package="penstock_jobs.benchmarks",
    summaries={
        "Measure, promote, roll back": {
            "bench": "Run benchmarks in isolation, import results, compare checkpoints.",
            "suites": "Mine suites from repositories and sessions, review and check them.",
        }
    },
    commands={
        "bench": "penstock_jobs.benchmarks.cli:app",
        "suites": "penstock_jobs.benchmarks.suites_cli:app",
    },
    tables=items("penstock_jobs.benchmarks.mine.proposals"),
    erasure=parts({"mined": "penstock_jobs.benchmarks.mine.proposals:PART"}),
    settings=items("penstock_jobs.benchmarks.room:BenchmarkSettings"),
    endpoints=items(
        "penstock_jobs.benchmarks.endpoints:ENDPOINTS",
        "penstock_jobs.benchmarks.mine.proposals:ENDPOINTS",
    ),
    pages=items("penstock_jobs.benchmarks.pages:PAGES"),
)
