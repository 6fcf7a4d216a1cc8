"""Penstock's loader reads a shard once; what is counted are samples whose ids were looked at."""

from pathlib import Path
from typing import Any

from bench.rivals.spending import answer_questions
from penstock.shards.reader import read_shard


def _load(question: dict[str, Any]) -> int:
    samples = 0
    with read_shard(
        Path(question["data"]), question["shard"], seed=question["round"],
        shuffle=question["shuffle"], batch_samples=question["batch"], column_copies=True,
    ) as reader:  # fmt: skip
        for batch in reader:
            samples += sum(len(ids) == question["length"] for ids in batch["input_ids"])
    return samples


if __name__ == "__main__":
    answer_questions(_load)
