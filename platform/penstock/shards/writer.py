"""Writing the parts of a shard: Parquet, cut where groups end, the same bytes for the same rows.

A part ends where a group ends. So does a row group, unless a single group is larger than one. The
tables in which callers pass the rows change nothing. The version of Arrow does: it is in each file.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import InvalidInput
from penstock.lake.segments import DigestingFile
from penstock.settings import MIB
from penstock.shards.files import part_name, routes_name
from penstock.shards.manifest import PartFile, RoutesFile
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS, SORTED_BY, group_starts

ZSTD_LEVEL = 3
#: What a row takes beside its tokens and texts, about.
_ROW_BYTES = 256

#: Four streams of bytes each: a seventh smaller, and quicker to read than plain numbers.
_SPLIT = {
    "input_ids.list.element": "BYTE_STREAM_SPLIT",
    "rollout_logprobs.list.element": "BYTE_STREAM_SPLIT",
}
#: Few distinct values a row group: worth a dictionary.
_DICTIONARY = [
    *("group_id", "rollout_id", "session_id", "task_id", "link_kind", "status", "stop_reason"),
    *("mask_reason", "error_kind", "token_source", "tokenizer_sha256", "template_sha256"),
    *("model_name", "checkpoint_id", "source_system", "split", "consent", "tools"),
    *("loss_mask.list.element", "policy_version_runs.list.element.version"),
    "reward_components.list.element.name",
    *("turn_spans.list.element.role", "turn_spans.list.element.sampled"),
    *("layers", "topk", "dtype"),
]
#: The columns whose least and greatest values are worth their room in the index of a file.
_COMPARED = [
    *("sample_id", "trajectory_id", "rollout_id", "group_id", "task_id", "session_id"),
    *("n_tokens", "n_trainable", "prompt_len", "min_policy_version", "max_policy_version"),
    *("reward", "advantage", "loss_weight", "status", "token_source", "created_at"),
]


@dataclass(frozen=True)
class PartLimits:
    """In bytes before compression. The first group that begins over a target begins a new part."""

    part_bytes_target: int = 512 * MIB
    part_rows_target: int = 200_000
    #: Readers of nested columns fail over 64 MiB, and the loader holds several in memory.
    row_group_bytes_max: int = 4 * MIB


def row_bytes(rows: pa.Table) -> np.ndarray:
    """About what each row takes before compression. It depends on the row alone."""
    tokens = rows["n_tokens"].to_numpy().astype(np.int64)
    logprobs = np.where(rows["rollout_logprobs"].is_valid().to_numpy(zero_copy_only=False), 4, 0)
    texts = _binary_lengths(rows["messages"]) + _binary_lengths(rows["tools"])
    return np.asarray(_ROW_BYTES + tokens * (5 + logprobs) + texts)


def _binary_lengths(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0).to_numpy())


class FileCreator(Protocol):
    def create(self, name: str) -> AbstractContextManager[BinaryIO]: ...


class PartWriter:
    """Writes sorted rows into the parts of a shard. Use as a context manager; `files` is complete
    when the block ended well. Holds a row group in memory, and routes of as many bytes.

    A writer that is `routed` is given the routes of the same rows with each write.
    """

    def __init__(
        self, store: FileCreator, folder: str, limits: PartLimits, *, routed: bool = False
    ) -> None:
        self.files: list[PartFile] = []
        self._store = store
        self._folder = folder
        self._limits = limits
        self._number = 0
        self._routed = routed
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
        """Rows that sort behind those written before; a group may go on in the next call."""
        if not rows.num_rows:
            return
        rows = rows.select(SHARD_ROWS.names).cast(SHARD_ROWS)
        if self._routed:
            if routes is None or not routes["sample_id"].equals(rows["sample_id"]):
                why = "they are not those of the same rows"
                raise InvalidInput(what="The routed experts", why=why)
            routes = routes.select(ROUTE_ROWS.names).cast(ROUTE_ROWS)
        starts, sizes = group_starts(rows["group_id"], self._group), row_bytes(rows)
        self._group = rows["group_id"][-1].as_py()
        for begin, end in pairwise([0, *self._part_ends(starts, sizes), rows.num_rows]):
            piece = slice(begin, end)
            if end > begin:
                if self._part is None:
                    path = f"{self._folder}/{part_name(self._number)}".removeprefix("/")
                    self._part = _OpenPart(self._store, path, self._limits, routed=self._routed)
                    self._number += 1
                own_routes = None if routes is None else routes[piece]
                self._part.write(rows[piece], starts[piece], sizes[piece], own_routes)
            if end < rows.num_rows:
                self._end_part()

    def _part_ends(self, starts: np.ndarray, sizes: np.ndarray) -> list[int]:
        """Before which rows a part ends."""
        ends, limits = [], self._limits
        rows, bytes_ = (self._part.rows, self._part.bytes) if self._part else (0, 0)
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
    """One part that is being written. Its rows wait until a row group is full."""

    def __init__(self, store: FileCreator, path: str, limits: PartLimits, *, routed: bool) -> None:
        self.rows = self.bytes = 0
        self._name = path.rpartition("/")[2]
        self._bytes_max = limits.row_group_bytes_max
        self._tokens = self._trainable = self._groups = 0
        self._first = self._last = ""
        self._continued: list[int] = []
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0
        #: Where among the waiting rows the newest group begins, and the bytes before it.
        self._group_at = self._bytes_before_group = 0
        self._continues = False
        with ExitStack() as stack:
            sink = stack.enter_context(store.create(path))
            self._file = _ParquetFile(stack, sink, SHARD_ROWS, SORTED_BY)
            self._routes: _ParquetFile | None = None
            if routed:
                sink = stack.enter_context(store.create(routes_name(path)))
                self._routes = _ParquetFile(stack, sink, ROUTE_ROWS)
            self._stack = stack.pop_all()

    def write(
        self, rows: pa.Table, starts: np.ndarray, sizes: np.ndarray, routes: pa.Table | None
    ) -> None:
        if not self.rows:
            self._first = rows["group_id"][0].as_py()
        self._last = rows["group_id"][-1].as_py()
        self._groups += int(starts.sum())
        self._tokens += pc.sum(rows["n_tokens"]).as_py()
        self._trainable += pc.sum(rows["n_trainable"]).as_py()
        self.rows += rows.num_rows
        self.bytes += int(sizes.sum())
        if self._routes and routes is not None:
            for row, size in enumerate(_binary_lengths(routes["routed_experts"]).tolist()):
                self._routes.write_later(routes[row : row + 1], size, self._bytes_max)
        begun = 0
        for row, (starting, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            if starting:
                self._group_at = self._waiting_rows + row - begun
                self._bytes_before_group = self._waiting_bytes
            if self._waiting_bytes and self._waiting_bytes + size > self._bytes_max:
                self._wait(rows[begun:row])
                begun = row
                self._cut(size)
            self._waiting_bytes += size
        self._wait(rows[begun:])

    def _wait(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._waiting.append(rows)
            self._waiting_rows += rows.num_rows

    def _cut(self, next_size: int) -> None:
        """Make room for a row: where its group begins, or, if that is not enough, right here."""
        if self._group_at:
            self._write_waiting(self._group_at)
            self._waiting_bytes -= self._bytes_before_group
            self._group_at = self._bytes_before_group = 0
            self._continues = False
        if self._waiting_rows and self._waiting_bytes + next_size > self._bytes_max:
            self._write_waiting(self._waiting_rows)
            self._waiting_bytes = 0
            self._continues = True

    def _write_waiting(self, count: int) -> None:
        """The first of the waiting rows, as a row group."""
        waiting = pa.concat_tables(self._waiting)
        if self._continues:
            self._continued.append(len(self._file.row_groups))
        self._file.write(waiting[:count])
        rest = waiting[count:]
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_rows = rest.num_rows

    def finish(self) -> PartFile:
        with self._stack:
            if self._waiting_rows:
                self._write_waiting(self._waiting_rows)
            if self._routes:
                self._routes.write_waiting()
        side = None
        if self._routes:
            side = RoutesFile(name=routes_name(self._name), **self._routes.facts())
        return PartFile(
            name=self._name, rows=self.rows, tokens=self._tokens, trainable=self._trainable,
            groups=self._groups, first=self._first, last=self._last, continued=self._continued,
            routes=side, **self._file.facts(),
        )  # fmt: skip

    def give_up(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]  # passed through unseen


class _ParquetFile:
    """A Parquet file that is being written; the stack closes it."""

    def __init__(
        self, stack: ExitStack, sink: BinaryIO, schema: pa.Schema, sorted_by: Sequence[str] = ()
    ) -> None:
        self.row_groups: list[int] = []
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._sink = DigestingFile(sink)
        order = [(name, "ascending") for name in sorted_by]
        split = {name.split(".")[0] for name in _SPLIT}
        self._file = stack.enter_context(
            pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                schema,
                compression="zstd",
                compression_level=ZSTD_LEVEL,
                use_dictionary=[name for name in _DICTIONARY if name.split(".")[0] in schema.names],
                column_encoding=_SPLIT if split <= set(schema.names) else None,
                write_statistics=[name for name in _COMPARED if name in schema.names],
                write_page_index=True,
                write_page_checksum=True,
                sorting_columns=pq.SortingColumn.from_ordering(schema, order) if order else None,
            )
        )

    def write(self, rows: pa.Table) -> None:
        """As one row group. In one piece, since pages end where pieces do."""
        self._file.write_table(rows.combine_chunks(), row_group_size=rows.num_rows)
        self.row_groups.append(rows.num_rows)

    def write_later(self, row: pa.Table, size: int, bytes_max: int) -> None:
        if self._waiting_bytes and self._waiting_bytes + size > bytes_max:
            self.write_waiting()
        self._waiting.append(row)
        self._waiting_bytes += size

    def write_waiting(self) -> None:
        if self._waiting:
            self.write(pa.concat_tables(self._waiting))
        self._waiting = []
        self._waiting_bytes = 0

    def facts(self) -> dict[str, Any]:
        """What the manifest says of it, once it is closed."""
        sha256 = self._sink.digest.hexdigest()
        return {"sha256": sha256, "bytes": self._sink.size, "row_groups": self.row_groups}
