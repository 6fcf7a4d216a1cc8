"""litdata reads the same samples from its own chunks, which it wrote before: raw, or with zstd."""

from typing import Any

import litdata

from bench.rivals.shard_samples import shard_samples
from bench.rivals.spending import answer_questions

_CHUNK_BYTES = "64MB"


def _read(question: dict[str, Any]) -> int:
    dataset = litdata.StreamingDataset(
        input_dir=question["folder"], shuffle=question["shuffle"], seed=question["round"]
    )
    return sum(len(sample["input_ids"]) == question["length"] for sample in dataset)


def _write(question: dict[str, Any]) -> None:
    litdata.optimize(
        fn=shard_samples,
        inputs=[[path] for path in question["parts"]],
        output_dir=question["folder"],
        chunk_bytes=_CHUNK_BYTES,
        compression=question["compression"],
        num_workers=1,
    )


if __name__ == "__main__":
    answer_questions(_read, _write)
