"""The variables that agents and checks get, and settings that are gone."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import RoomSettings


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings(RoomSettings):
    """See docs/settings.md."""

    RETIRED: ClassVar = frozenset({
        "benchmark_tries_max", "benchmark_retry_seconds", "benchmark_errors_max",
        "benchmark_output_bytes_max", "benchmark_report_bytes_max", "benchmark_task_bytes_max",
        "results_document_bytes_max", "results_unpacked_bytes_max", "results_attempts_max",
    })  # fmt: skip

    VARIABLES: ClassVar = frozenset({
        "attempt", "check", "checkpoint", "edited", "model_url", "prompt_file", "report",
        "result", "seed", "suite", "task",
    })  # fmt: skip
