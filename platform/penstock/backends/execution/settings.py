"""The settings of the executors of heavy jobs."""

from dataclasses import dataclass

from penstock.core.settings import GIB, RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class ExecutionSettings(RoomSettings):
    executor: str = setting(
        "inline",
        "heavy jobs: inline, processes or ray://HOST:PORT",
        "Set it when heavy jobs take longer than you can wait.",
    )
    executor_workers: int = setting(
        0,
        "worker processes; 0 is one for each core",
        "Set it when other programs need some of the cores.",
        minimum=0,
    )
    executor_task_memory_bytes: int = setting(
        GIB,
        "memory that Ray keeps for a task",
        "Raise it when Ray ends tasks for want of memory.",
        minimum=0,
    )
