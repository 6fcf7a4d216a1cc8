"""Trainers of both kinds, and something for them to do."""

from pathlib import Path
from typing import Any

from penstock.backends.http.address import EgressPolicy, HttpAddress
from penstock_jobs.loop.trainers import CommandTrainer, HttpTrainer, TrainerFolders, TrainingTask


def task(*, attempt: int = 1, limit_s: float = 60) -> TrainingTask:
    facts: dict[str, str | int] = {
        "checkpoint": "mini-0001",
        "cycle": 1,
        "loop": "mini",
        "parent": "first",
        "parent_digest": "sha256:2",
        "parent_uri": "https://models.test/first",
        "shard": "sha256:1",
        "shard_folder": "/lake/shards/1",
        "lake": "file:///lake",
    }
    return TrainingTask(key="mini-0001-abc", attempt=attempt, limit_s=limit_s, facts=facts)


def by_command(folder: Path, command: str) -> CommandTrainer:
    return CommandTrainer(
        command=command,
        directory=folder,
        folders=TrainerFolders(folder / "cycle"),
        data=folder / "data",
    )


def by_address(url: str, **facts: Any) -> HttpTrainer:
    pauses = {"pause_s": 0.01, "pause_s_max": 0.05, "silence_s": 60}
    address = HttpAddress.of(url, "url")
    egress = EgressPolicy(of_operator=True)
    return HttpTrainer(address=address, egress=egress, **{"seconds_max": 10, **pauses, **facts})
