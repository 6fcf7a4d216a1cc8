"""mosaicml-streaming reads the same samples from its own files, which it wrote before."""

from typing import Any

from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from bench.rivals.shard_samples import shard_samples
from bench.rivals.spending import answer_questions

_COLUMNS = {
    "input_ids": "ndarray:int32",
    "loss_mask": "ndarray:uint8",
    "rollout_logprobs": "ndarray:float32",
}


def _write(question: dict[str, Any]) -> None:
    with MDSWriter(out=question["folder"], columns=_COLUMNS) as writer:
        for sample in shard_samples(question["parts"]):
            writer.write(sample)


def _read(question: dict[str, Any]) -> int:
    clean_stale_shared_memory()
    dataset = StreamingDataset(
        local=question["folder"],
        shuffle=question["shuffle"],
        shuffle_seed=question["round"],
        batch_size=question["batch"],
    )
    return sum(len(sample["input_ids"]) == question["length"] for sample in dataset)


if __name__ == "__main__":
    answer_questions(_read, _write)
