"""Writing the parts of a shard as Parquet: equal rows and an equal Arrow version give equal bytes.

A part ends where a group ends. So does a row group, unless a single group is larger than one.
"""

from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, BinaryIO, Protocol, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import InvalidInput
from penstock.core.settings import MIB
from penstock.lake.segments import DigestingFile
from penstock.shards.manifest import PartFile, ShardFile, part_name, routes_name
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS, SORTED_BY, group_starts

ZSTD_LEVEL = 3
_ROW_BYTES = 256

#: Split into four byte streams: a seventh smaller, and faster to read than plain numbers.
_SPLIT = {
    "input_ids.list.element": "BYTE_STREAM_SPLIT",
    "rollout_logprobs.list.element": "BYTE_STREAM_SPLIT",
}
#: Few distinct values per row group, so worth a dictionary.
_DICTIONARY = [
    *("group_id", "rollout_id", "session_id", "task_id", "link_kind", "status", "stop_reason"),
    *("mask_reason", "error_kind", "token_source", "tokenizer_sha256", "tokenizer_id"),
    *("template_sha256", "model_name", "checkpoint_id", "source_system", "license", "split"),
    *("consent", "tools", "temperature_runs.list.element.temperature"),
    *("loss_mask.list.element", "policy_version_runs.list.element.version"),
    "reward_components.list.element.name",
    *("turn_spans.list.element.role", "turn_spans.list.element.sampled"),
    *("layers", "topk", "dtype"),
]


class PartLimits(msgspec.Struct, frozen=True):
    """Limits in bytes before compression. The first group beyond a target begins a new part."""

    part_bytes_target: int = 512 * MIB
    part_rows_target: int = 200_000
    #: Readers of nested columns fail above 64 MiB, and the loader holds several in memory.
    row_group_bytes_max: int = 4 * MIB


def row_bytes(rows: pa.Table) -> np.ndarray:
    """Estimate the size of each row before compression, from the row alone."""
    tokens = rows["n_tokens"].to_numpy().astype(np.int64)
    logprobs = np.where(rows["rollout_logprobs"].is_valid().to_numpy(zero_copy_only=False), 4, 0)
    texts = _binary_lengths(rows["messages"]) + _binary_lengths(rows["tools"])
    return np.asarray(_ROW_BYTES + tokens * (5 + logprobs) + texts)


def count_rows(rows: pa.Table, starts: np.ndarray) -> dict[str, int]:
    """Count what the manifest counts; `starts` are the rows where groups begin."""
    sums = {name: pc.sum(rows[f"n_{name}"]).as_py() or 0 for name in ("tokens", "trainable")}
    return {"rows": rows.num_rows, "groups": int(starts.sum()), **sums}


def _binary_lengths(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0).to_numpy())


Sink = AbstractContextManager[BinaryIO]


class FileCreator(Protocol):
    def create(self, name: str) -> Sink: ...


@dataclass
class PartWriter:
    """Writes sorted rows into the parts of a shard, `routed` also their routes. `files` is complete
    when the block ends without an error."""

    store: FileCreator
    folder: str
    limits: PartLimits
    _: KW_ONLY
    routed: bool = False

    def __post_init__(self) -> None:
        self.files: list[PartFile] = []
        self._part: _OpenPart | None = None
        self._group: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._end_part()
        elif self._part is not None:
            self._part.give_up(kind, *error)

    def write(self, rows: pa.Table, routes: pa.Table | None = None) -> None:
        """Write rows that sort after the earlier ones; a group may continue in the next call."""
        if not rows.num_rows:
            return
        rows = rows.select(SHARD_ROWS.names).cast(SHARD_ROWS)
        if self.routed:
            if routes is None or not routes["sample_id"].equals(rows["sample_id"]):
                why = "they belong to other rows"
                raise InvalidInput(what="The routed experts", why=why)
            routes = routes.select(ROUTE_ROWS.names).cast(ROUTE_ROWS)
        starts, sizes = group_starts(rows["group_id"], self._group), row_bytes(rows)
        self._group = rows["group_id"][-1].as_py()
        for begin, end in pairwise([0, *self._part_ends(starts, sizes), rows.num_rows]):
            piece = slice(begin, end)
            if end > begin:
                if self._part is None:
                    name = part_name(len(self.files))
                    path = f"{self.folder}/{name}".removeprefix("/")
                    self._part = _OpenPart(self.store, path, self.limits, routed=self.routed)
                own_routes = None if routes is None else routes[piece]
                self._part.write(rows[piece], starts[piece], sizes[piece], own_routes)
            if end < rows.num_rows:
                self._end_part()

    def _part_ends(self, starts: np.ndarray, sizes: np.ndarray) -> list[int]:
        ends, limits = [], self.limits
        rows, bytes_ = (self._part.counts["rows"], self._part.bytes) if self._part else (0, 0)
        for row, (starting, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            full = rows >= limits.part_rows_target or bytes_ >= limits.part_bytes_target
            if starting and full:
                ends.append(row)
                rows = bytes_ = 0
            rows += 1
            bytes_ += size
        return ends

    def _end_part(self) -> None:
        if self._part is not None:
            self.files.append(self._part.finish())
        self._part = None


class _OpenPart:
    """A part in progress. Rows wait until a row group is full."""

    def __init__(self, store: FileCreator, path: str, limits: PartLimits, *, routed: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes = 0
        self._name = path.rpartition("/")[2]
        self._bytes_max = limits.row_group_bytes_max
        self._first = self._last = ""
        self._continued: list[int] = []
        self._continues = False
        #: The start of the newest group among the waiting rows, and the bytes before it.
        self._group = 0, 0
        self._routes: _ParquetFile | None = None
        with ExitStack() as stack:
            self._file = _ParquetFile(stack, store.create(path), SHARD_ROWS)
            if routed:
                self._routes = _ParquetFile(stack, store.create(routes_name(path)), ROUTE_ROWS)
            self._stack = stack.pop_all()

    def write(
        self, rows: pa.Table, starts: np.ndarray, sizes: np.ndarray, routes: pa.Table | None
    ) -> None:
        self._first = self._first if self.counts else rows["group_id"][0].as_py()
        self._last = rows["group_id"][-1].as_py()
        self.counts.update(count_rows(rows, starts))
        self.bytes += int(sizes.sum())
        if (side := self._routes) and routes is not None:
            for row, size in enumerate(_binary_lengths(routes["routed_experts"]).tolist()):
                if side.waiting_bytes and side.waiting_bytes + size > self._bytes_max:
                    side.write(side.waiting_rows, side.waiting_bytes)
                side.wait(routes[row : row + 1])
                side.waiting_bytes += size
        begun, file = 0, self._file
        for row, (starting, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            if starting:
                self._group = file.waiting_rows + row - begun, file.waiting_bytes
            if file.waiting_bytes and file.waiting_bytes + size > self._bytes_max:
                file.wait(rows[begun:row])
                begun = row
                if self._group[0]:  # end the row group before the group
                    self._write_group(*self._group)
                    self._group, self._continues = (0, 0), False
                if file.waiting_rows and file.waiting_bytes + size > self._bytes_max:
                    self._write_group(file.waiting_rows, file.waiting_bytes)
                    self._continues = True
            file.waiting_bytes += size
        file.wait(rows[begun:])

    def _write_group(self, rows: int, bytes_: int) -> None:
        if self._continues:
            self._continued.append(len(self._file.row_groups))
        self._file.write(rows, bytes_)

    def finish(self) -> PartFile:
        file, side, routes = self._file, self._routes, None
        with self._stack:
            if file.waiting_rows:
                self._write_group(file.waiting_rows, file.waiting_bytes)
            if side and side.waiting_rows:
                side.write(side.waiting_rows, side.waiting_bytes)
        if side:
            routes = ShardFile(name=routes_name(self._name), **side.facts())
        facts = file.facts() | self.counts | {"first": self._first, "last": self._last}
        return PartFile(name=self._name, continued=self._continued, routes=routes, **facts)

    def give_up(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]  # passed through unseen


def _compared(field: pa.Field) -> list[str]:
    """Paths of columns with page bounds. Long texts have none: nobody searches for ranges of
    conversations."""
    kind, inside = field.type, f"{field.name}.list.element"
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return []
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return [field.name]
    if not pa.types.is_struct(kind.value_type):
        return [inside]
    return [f"{inside}.{part.name}" for part in kind.value_type]


class _ParquetFile:
    """A Parquet file in progress, and its waiting rows; the stack closes it."""

    def __init__(self, stack: ExitStack, sink: Sink, schema: pa.Schema) -> None:
        self.row_groups: list[int] = []
        self.waiting_rows = self.waiting_bytes = 0
        self._waiting: list[pa.Table] = []
        self._sink = DigestingFile(stack.enter_context(sink))
        order = [(name, "ascending") for name in SORTED_BY if name in schema.names]
        split = {name.split(".")[0] for name in _SPLIT}
        self._file = stack.enter_context(
            pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                schema,
                compression="zstd",
                compression_level=ZSTD_LEVEL,
                use_dictionary=[name for name in _DICTIONARY if name.split(".")[0] in schema.names],
                column_encoding=_SPLIT if split <= set(schema.names) else None,
                write_statistics=[leaf for field in schema for leaf in _compared(field)],
                write_page_index=True,
                write_page_checksum=True,
                sorting_columns=pq.SortingColumn.from_ordering(schema, order) if order else None,
            )
        )

    def wait(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._waiting.append(rows)
            self.waiting_rows += rows.num_rows

    def write(self, count: int, bytes_: int) -> None:
        """Write a row group of the first waiting rows. In one piece, since pages end with
        pieces."""
        waiting = pa.concat_tables(self._waiting)
        self._file.write_table(waiting[:count].combine_chunks(), row_group_size=count)
        self.row_groups.append(count)
        self._waiting = [waiting[count:]]
        self.waiting_rows -= count
        self.waiting_bytes -= bytes_

    def facts(self) -> dict[str, Any]:
        """The facts of a closed file for the manifest."""
        sha256 = self._sink.digest.hexdigest()
        return {"sha256": sha256, "bytes": self._sink.size, "row_groups": self.row_groups}
