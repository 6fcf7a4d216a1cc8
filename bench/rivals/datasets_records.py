"""Hugging Face datasets makes records of the same events: ids, a mask and log-probabilities of each
session, as Parquet. It keeps no lineage, consent, rewards or versions."""

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, disable_progress_bars

from bench.rivals.spending import answer_questions

_COLUMNS = ["session_id", "ts", "seq", "type", "payload"]
_BATCH = 1_000


def _records(events: Dataset) -> Iterator[dict[str, Any]]:
    rows = (row for batch in events.with_format("arrow").iter(_BATCH) for row in batch.to_pylist())
    for session_id, session in itertools.groupby(rows, key=lambda row: row["session_id"]):
        calls = [
            json.loads(row["payload"])["tokens"] for row in session if row["type"] == "model_call"
        ]
        last = calls[-1]
        ids = last["prompt_ids"] + last["completion_ids"]
        mask, logprobs = [0] * len(ids), [0.0] * len(ids)
        for call in calls:
            start, count = len(call["prompt_ids"]), len(call["completion_ids"])
            mask[start : start + count] = [1] * count
            logprobs[start : start + count] = call["logprobs"]
        yield {"session_id": session_id, "input_ids": ids, "mask": mask, "logprobs": logprobs}


def _build(question: dict[str, Any]) -> int:
    disable_progress_bars()
    folder = Path(question["folder"]) / f"datasets-{question['round']}"
    # Not by `from_parquet`: it refuses files with a column of bytes of a fixed size.
    rows = pa.concat_tables(pq.read_table(path, columns=_COLUMNS) for path in question["segments"])
    events = Dataset(rows).sort(["session_id", "ts", "seq"])
    records = Dataset.from_generator(
        _records, gen_kwargs={"events": events}, cache_dir=str(folder / "records")
    )
    records.to_parquet(str(folder / "records.parquet"))
    tokens = sum(len(ids) for ids in records.with_format("numpy")["input_ids"])
    assert tokens == question["tokens"], (tokens, question["tokens"])
    shutil.rmtree(folder)
    return int(records.num_rows)


if __name__ == "__main__":
    answer_questions(_build)
