"""A raw scan of a shard's files with pyarrow, to numpy: no order, no resuming, no ranks."""

from typing import Any

import pyarrow.parquet as pq

from bench.rivals.spending import answer_questions
from penstock.shards.batches import TRAINING_COLUMNS, to_numpy


def _scan(question: dict[str, Any]) -> int:
    samples = 0
    for path in question["parts"]:
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=list(TRAINING_COLUMNS))
            columns: dict[str, Any] = {}
            for name in TRAINING_COLUMNS:
                columns |= to_numpy(name, rows[name])
            samples += sum(len(ids) == question["length"] for ids in columns["input_ids"])
    return samples


if __name__ == "__main__":
    answer_questions(_scan)
