"""How fast the loader feeds a trainer, beside a plain scan of the same files in the same run."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from penstock.backends.storage.object_store import FileStore
from penstock.core.settings import MIB
from penstock.shards.batches import TRAINING_COLUMNS, Ragged, to_numpy
from penstock.shards.manifest import Counts, Manifest
from penstock.shards.reader import ShardReader, read_shard
from penstock.shards.schema import SHARD_ROWS
from penstock.shards.shard import shard_folder
from penstock.shards.writer import PartLimits, PartWriter
from tests.support.shards.making import publish

_TOKENS = 60_000_000
_LENGTHS = (1_000, 12_000)
_BATCH_TOKENS = 262_144
_ROUNDS = 5
_PLACES = 12
_ROWS_AT_ONCE = 50
_SCAN = Goal(what="loader against a scan", at_least=1)
_COPIES = Goal(what="  with column copies, against Parquet", at_least=3)
_RESUME = Goal(what="resume to the first batch", at_most=50, unit=" ms")


class Shard(NamedTuple):
    data: Path
    manifest: Manifest

    def reader(self, *, column_copies: bool = False) -> ShardReader:
        return read_shard(
            self.data, self.manifest.id, seed=1, batch_tokens=_BATCH_TOKENS,
            column_copies=column_copies,
        )  # fmt: skip

    def paths(self) -> list[Path]:
        folder = self.data / "lake" / shard_folder("default", self.manifest.id)
        return [folder / one.name for one in self.manifest.files]


def _measure(size: Size, directory: Path) -> Iterator[Figure]:
    for length in _LENGTHS:
        shard = make_shard(directory / f"loading-{length}", length, size.of(_TOKENS, 20 * length))
        yield from _speed(shard, length)
        yield from _resuming(shard, length)
        yield from _memory(shard)


def _speed(shard: Shard, length: int) -> Iterator[Figure]:
    """The way of reading that is to be matched is the quickest of Arrow's own, on all cores."""
    scans, rows, flats, copies = [], [], [], []
    _load(shard, flat=False, column_copies=True)  # which makes them
    for _ in range(_ROUNDS):
        scans.append(_seconds(lambda: _scan(shard)))
        rows.append(_seconds(lambda: _load(shard, flat=False)))
        flats.append(_seconds(lambda: _load(shard, flat=True)))
        copies.append(_seconds(lambda: _load(shard, flat=False, column_copies=True)))
    samples = shard.manifest.rows
    yield _SCAN.figure(median(scans) / median(rows), f"samples of {length:,} tokens")
    yield Figure("  the same, values in one piece", f"{median(scans) / median(flats):.2f}")
    yield _COPIES.figure(median(rows) / median(copies))
    for name, seconds in (
        *(("loader", median(rows)), ("with column copies", median(copies))),
        ("scan", median(scans)),
    ):
        million = f"{samples * length / seconds / 1e6:.0f} million tokens/s"
        yield Figure(f"  {name}", f"{samples / seconds:,.0f} samples/s, {million}")


def _resuming(shard: Shard, length: int) -> Iterator[Figure]:
    """From a state to the first batch, at places all over the epoch."""
    with shard.reader() as reader:
        state = reader.state_dict()
    for column_copies in (True, False):
        times = []
        for place in range(_PLACES):
            state["sources"][0]["samples_consumed"] = shard.manifest.rows * place // _PLACES
            started = time.perf_counter()
            with shard.reader(column_copies=column_copies) as reader:
                reader.load_state_dict(state)
                next(iter(reader))
                times.append(1000 * (time.perf_counter() - started))
        kind = "by column copies" if column_copies else "from Parquet"
        yield _RESUME.figure(median(times), f"{length:,} tokens, {kind}")
        yield Figure("  the slowest place", f"{max(times):.0f} ms")


_PEAK = """
import sys
from bench.measure import usage_of
from penstock.shards.reader import read_shard
import os
before = usage_of(os.getpid()).peak_bytes
for batch in read_shard(sys.argv[1], sys.argv[2], batch_tokens=int(sys.argv[3])):
    batch["input_ids"].values
print(usage_of(os.getpid()).peak_bytes - before)
"""


def _memory(shard: Shard) -> Iterator[Figure]:
    """In a process of its own, beyond what it takes to import everything."""
    command = [sys.executable, "-c", _PEAK, str(shard.data), shard.manifest.id, str(_BATCH_TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    yield Figure("  peak memory of the loader", f"{int(done.stdout) / MIB:.0f} MiB")


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _scan(shard: Shard) -> None:
    for path in shard.paths():
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=list(TRAINING_COLUMNS))
            for name in TRAINING_COLUMNS:
                to_numpy(name, rows[name])


def _load(shard: Shard, *, flat: bool, column_copies: bool = False) -> None:
    """Rows are numpy views from the start; `flat` asks for each column in one piece too."""
    with shard.reader(column_copies=column_copies) as reader:
        for batch in reader:
            for column in batch.columns.values():
                if flat and isinstance(column, Ragged):
                    _ = (column.values, column.offsets)


def make_shard(data: Path, length: int, tokens: int = _TOKENS) -> Shard:
    """Sequences of the same length, two thirds of each read and one third written."""
    rng = np.random.default_rng(1)
    store = FileStore(data / "lake")
    with PartWriter(store, "staging", PartLimits()) as writer:
        for first in range(0, tokens // length, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, tokens // length - first)
            writer.write(_rows(first, count, length, rng))
    manifest = Manifest(name="loading", files=writer.files, counts=Counts())
    publish(store, "staging", store, manifest)
    for path in store.list("staging"):
        store.delete(path.name)
    return Shard(data, manifest)


def _rows(first: int, count: int, length: int, rng: np.random.Generator) -> pa.Table:
    prompt, tokens = 2 * length // 3, count * length
    mask = np.tile(np.arange(length) >= prompt, count)
    numbers = {
        "input_ids": np.minimum(rng.zipf(1.3, tokens), 150_000).astype(np.int32),
        "loss_mask": mask.astype(np.uint8),
        "rollout_logprobs": np.where(mask, -rng.exponential(0.3, tokens), 0).astype(np.float32),
    }
    offsets = pa.array(np.arange(count + 1) * length)
    names = [f"session-{number:08d}" for number in range(first, first + count)]
    ids = ("sample_id", "trajectory_id", "rollout_id", "group_id", "session_id")
    columns = dict.fromkeys(ids, pa.array(names)) | {
        name: pa.LargeListArray.from_arrays(
            offsets, pa.array(values), type=SHARD_ROWS.field(name).type
        )
        for name, values in numbers.items()
    }
    span = {"start": prompt, "end": length, "turn": 1, "role": 2, "sampled": True, "event_seq": 2}
    same = {
        "branch_index": 0,
        "n_branches": 1,
        "chain_pos": 0,
        "is_last_step": True,
        "prompt_len": prompt,
        "n_tokens": length,
        "n_trainable": length - prompt,
        "temperature": 1.0,
        "advantage": 0.1,
        "reward": 0.5,
        "loss_weight": 1.0,
        "reward_components": [],
        "turn_spans": [span],
        "status": "completed",
        "token_source": "engine",
        "tokenizer_sha256": "00" * 32,
        "split": "train",
        "consent": "train",
        "created_at": 0,
        "messages": "[]",
    }
    arrays = [
        columns.get(field.name, pa.array([same.get(field.name)] * count, field.type))
        for field in SHARD_ROWS
    ]
    return pa.Table.from_arrays(arrays, schema=SHARD_ROWS)


MEASUREMENT = Measurement(
    name="loader",
    title="The loader",
    about="""
The loader, with and without column copies, beside a plain pyarrow scan of the same
files to numpy, in turns; seconds by the clock, since both use all cores.
""",
    goals=(_SCAN, _COPIES, _RESUME),
    run=_measure,
)
