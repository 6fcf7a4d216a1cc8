"""The samples of a shard's files as a rival's own format takes them. Imports nothing of
Penstock's."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq

KINDS: dict[str, Any] = {
    "input_ids": np.int32,
    "loss_mask": np.uint8,
    "rollout_logprobs": np.float32,
}


def shard_samples(parts: Sequence[str]) -> Iterator[dict[str, Any]]:
    for path in parts:
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=list(KINDS))
            for row in range(rows.num_rows):
                yield {
                    name: np.asarray(rows[name][row].values.to_numpy(zero_copy_only=False), kind)
                    for name, kind in KINDS.items()
                }
