"""Exports: a shard in the format of a trainer.

An `Exporter` is found in modules of `penstock_jobs.shards.exporters`, or by entry points of the
group `penstock.exporters`. Rows that a format cannot hold are counted by reason.
"""

import importlib
import json
import pkgutil
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.files import relative_name, sync_directory
from penstock.core.settings import MIB
from penstock.core.toml_document import unknown
from penstock.shards.manifest import Manifest, PartFile, RouteRows, StoredShard, read_part
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS, Rows
from penstock_jobs.shards import exporters

#: Uncompressed bytes of a written row group. Readers of nested columns fail on large ones.
ROW_GROUP_BYTES = 16 * MIB
#: Sizes of a batch of whole groups.
STEP_SAMPLES = 128
STEP_TOKENS = 1_000_000
EXPORT_NAME = "export.json"
#: A trainer may run as another user of the group.
_FOLDER_MODE = 0o770
_ZSTD_LEVEL = 3
_GROUP = "penstock.exporters"


class ExportEmpty(PenstockError):
    """The shard {shard} has no rows for {target}: {why}. No directory was made. docs/training.md
    explains the reasons."""


@dataclass
class _TableFile:
    """A file of rows, and rows waiting for a full row group."""

    writer: pq.ParquetWriter | pa.ipc.RecordBatchStreamWriter
    waiting: list[pa.Table] = field(default_factory=list)
    bytes: int = 0

    def add(self, rows: pa.Table) -> None:
        if self.bytes + rows.nbytes > ROW_GROUP_BYTES:
            self.flush()
        self.waiting.append(rows)
        self.bytes += rows.nbytes

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting).combine_chunks())
        self.waiting, self.bytes = [], 0


class ExportOutput:
    """The files of an export, as a context manager. Names are relative, with `/`."""

    def __init__(self, folder: Path) -> None:
        self.files: list[str] = []
        self.rows = 0
        self.left_out: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self._folder = folder
        self._tables: dict[str, _TableFile] = {}
        self._lines: dict[str, BinaryIO] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.end_files()
        self._open.close()

    def leave_out(self, reason: str, rows: int = 1) -> None:
        if rows:
            self.left_out[reason] += rows

    def table(self, name: str, rows: pa.Table) -> None:
        """Add rows to a Parquet file, or to an Arrow stream if named `.arrow`."""
        if not rows.num_rows:
            return
        if name not in self._tables:
            path = self._new(name)
            if path.suffix == ".arrow":
                file = self._open.enter_context(path.open("wb"))
                writer = pa.ipc.new_stream(file, rows.schema)
            else:
                options = {"compression": "zstd", "compression_level": _ZSTD_LEVEL}
                writer = pq.ParquetWriter(path, rows.schema, **options)
            self._tables[name] = _TableFile(self._open.enter_context(writer))
        self._tables[name].add(rows)

    def line(self, name: str, content: bytes) -> None:
        """Add a line to a file of JSON."""
        if name not in self._lines:
            self._lines[name] = self._open.enter_context(self._new(name).open("wb"))
        self._lines[name].write(content + b"\n")

    def file(self, name: str, pieces: Iterable[bytes]) -> None:
        with self._new(name).open("wb") as file:
            file.writelines(pieces)

    def end_files(self) -> None:
        """Finish all open files."""
        for table in self._tables.values():
            table.flush()
        self._open.close()
        self._tables, self._lines = {}, {}

    def _new(self, name: str) -> Path:
        path = self._folder / relative_name(name)  # a shard chooses names of splits
        self.files.append(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class ShardSource(msgspec.Struct, frozen=True):
    """A shard to export. A group never spans two parts."""

    shard: StoredShard

    @property
    def manifest(self) -> Manifest:
        return self.shard.manifest

    @property
    def routed(self) -> bool:
        """Whether a row may have routed experts."""
        return any(part.routes for part in self.manifest.files)

    def tables(self, part: PartFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read columns, including the side file's, which are null for parts without one."""
        store, side = self.shard.store, None
        own = [name for name in columns if name in SHARD_ROWS.names]
        of_routes = [name for name in columns if name not in own]
        if of_routes and part.routes:
            path = self.shard.path(part.routes)
            side = RouteRows(read_part(store, path, part.routes, of_routes))
        for rows in read_part(store, self.shard.path(part), part, own):
            routes = side.take(rows.num_rows) if side else None
            for name in of_routes:
                column = ROUTE_ROWS.field(name)
                nothing = pa.nulls(rows.num_rows, column.type)
                rows = rows.append_column(column, routes[name] if routes else nothing)  # noqa: PLW2901
            yield rows

    def all_tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for part in self.manifest.files:
            yield from self.tables(part, columns)

    def splits(
        self, columns: Sequence[str], output: ExportOutput, *reasons: str
    ) -> Iterator[tuple[str, pa.Table]]:
        """Yield rows of each part and split that no reason leaves out, with a file stem."""
        for number, part in enumerate(self.manifest.files):
            for table in self.tables(part, columns):
                rows = exported_rows(table, output, *reasons)
                for split in sorted(rows["split"].unique().to_pylist()):
                    yield file_stem(split, number), rows.filter(pc.equal(rows["split"], split))
            output.end_files()

    def steps(
        self, columns: Sequence[str], output: ExportOutput, *reasons: str
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield batches of whole groups of `token_rows`, near STEP_SAMPLES or STEP_TOKENS."""
        columns = (*columns, *ROUTES) if self.routed else columns
        tables = (exported_rows(table, output, *reasons) for table in self.all_tables(columns))
        step: list[dict[str, Any]] = []
        tokens = 0
        for row in (row for table in tables for row in token_rows(table)):
            full = len(step) >= STEP_SAMPLES or tokens >= STEP_TOKENS
            if full and row["group_id"] != step[-1]["group_id"]:
                yield step
                step, tokens = [], 0
            step.append(row)
            tokens += row["n_tokens"]
        if step:
            yield step


#: The columns that `not_trained` needs.
WEIGHING = ("n_trainable", "loss_weight")
TOKENS = ("input_ids", "loss_mask", "rollout_logprobs")
#: The columns that experts are read from.
ROUTES = ("routed_experts", "layers", "topk", "dtype", "start")
#: Reasons to leave out rows, with their conditions.
REASONS: Mapping[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    "not_trained": lambda table: pc.or_(
        pc.equal(table["n_trainable"], 0), pc.equal(table["loss_weight"], 0)
    ),
    "eval_split": lambda table: pc.equal(table["split"], "eval"),
    "no_logprobs": lambda table: table["rollout_logprobs"].is_null(),
    "no_temperature": lambda table: pc.and_(
        table["temperature"].is_null(), table["temperature_runs"].is_null()
    ),
    "no_advantage": lambda table: table["advantage"].is_null(),
    "no_reward": lambda table: table["reward"].is_null(),
    "reward_0": lambda table: pc.fill_null(pc.equal(table["reward"], 0), False),
    "no_prompt": lambda table: pc.equal(table["prompt_len"], 0),
    "no_hint": lambda table: table["hint"].is_null(),
}


def exported_mask(table: pa.Table, output: ExportOutput, *reasons: str) -> np.ndarray:
    """Mask rows for which no reason holds. Others are counted for their first reason."""
    mask = np.ones(table.num_rows, bool)
    for reason in reasons:
        holds = REASONS[reason](table).to_numpy()
        output.leave_out(reason, int((mask & holds).sum()))
        mask &= ~holds
    return mask


def exported_rows(table: pa.Table, output: ExportOutput, *reasons: str) -> pa.Table:
    mask = exported_mask(table, output, *reasons)
    return table if mask.all() else table.filter(pa.array(mask))


def file_stem(split: str, part: int) -> str:
    return f"{split}-{part:05d}"


def whole_lists(rows: Rows, name: str) -> pa.ListArray:
    """Return a column as plain lists."""
    return cut_lists(rows, name, np.zeros(rows.count, np.int64), rows.tokens)


def cut_lists(rows: Rows, name: str, start: np.ndarray, end: np.ndarray) -> pa.ListArray:
    offsets = np.append(0, np.cumsum(end - start)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(cut_values(rows, name, start, end)))


def cut_values(rows: Rows, name: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return values from `start` to `end` of each row, concatenated."""
    lists = rows.lists(name)
    place = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    inside = (place >= np.repeat(start, lists.lengths)) & (place < np.repeat(end, lists.lengths))
    values: np.ndarray = lists.numbers()[inside]
    return values


def token_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows with TOKENS as arrays and `routed_experts` by `experts_of`."""
    rows, names = Rows(table), [name for name in TOKENS if name in table.column_names]
    columns = [(name, rows.lists(name), rows.lists(name).numbers()) for name in names]
    for at, row in enumerate(table.drop_columns(names).to_pylist()):
        for name, lists, numbers in columns:
            inside = slice(int(lists.offsets[at]), int(lists.offsets[at + 1]))
            row[name] = numbers[inside] if lists.valid[at] else None
        yield row | {"routed_experts": experts_of(row)}


def experts_of(row: Mapping[str, Any]) -> np.ndarray | None:
    """Return the experts of a sample as [tokens, layers, topk]; the last tokens may lack some.

    None if its first tokens have no experts."""
    if row.get("routed_experts") is None or row["start"]:
        return None
    experts = np.frombuffer(row["routed_experts"], row["dtype"])
    return experts.reshape(-1, row["layers"], row["topk"])


class Exporter(msgspec.Struct, frozen=True):
    """An export format. `version` grows when `write` gives other bytes for the same shard.

    `target` is the software and version that reads it. `note` says what a reader has to know."""

    name: str
    version: int
    target: str
    write: Callable[[ShardSource, ExportOutput], None]
    note: str = ""


@dataclass(frozen=True)
class ExportReport:
    """The result of an export. `rows` and `left_out` add up to the shard's rows."""

    shard: str
    target: str
    version: int
    written_for: str
    rows: int
    left_out: dict[str, int]
    counted: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    note: str = ""


@cache
def all_exporters() -> dict[str, Exporter]:
    """Collect exporters by name. Raises InvalidInput if two share a name."""
    names = sorted(module.name for module in pkgutil.iter_modules(exporters.__path__))
    modules = [importlib.import_module(f"{exporters.__name__}.{name}") for name in names]
    values = (value for module in modules for value in vars(module).values())
    shipped = [value for value in values if isinstance(value, Exporter)]
    by_name: dict[str, Exporter] = {}
    for exporter in [*shipped, *(entry.load() for entry in entry_points(group=_GROUP))]:
        if exporter.name in by_name:
            raise InvalidInput(what=f"The exporter {exporter.name}", why="two modules define it")
        by_name[exporter.name] = exporter
    return dict(sorted(by_name.items()))


def check_target(target: str, out: Path) -> Exporter:
    """Find an exporter. Raises InvalidInput if it is unknown or the directory is in use."""
    known = all_exporters()
    if target not in known:
        raise InvalidInput(what=f"The target {target!r}", why=unknown(target, known))
    _refuse_used(out.absolute())
    return known[target]


def export_shard(shard: StoredShard, target: str, out: Path) -> ExportReport:
    """Write a shard into a directory, which appears once complete.

    Raises InvalidInput, ExportEmpty, ShardDamaged, what the store raises."""
    exporter = check_target(target, out)
    with appearing_folder(out) as folder:
        with ExportOutput(folder) as output:
            exporter.write(ShardSource(shard), output)
        if not output.files:
            left_out = sorted(output.left_out.items())
            counts = ", ".join(f"{reason} {count}" for reason, count in left_out)
            why = f"all of its rows are left out ({counts})" if counts else "it has no rows"
            raise ExportEmpty(shard=shard.id, target=target, why=why)
        report = ExportReport(
            shard=shard.id,
            target=exporter.name,
            version=exporter.version,
            written_for=exporter.target,
            rows=output.rows,
            left_out=dict(sorted(output.left_out.items())),
            counted=dict(sorted(output.counted.items())),
            files=sorted(output.files),
            note=exporter.note,
        )
        text = json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"
        (folder / EXPORT_NAME).write_text(text, encoding="utf-8")
    return report


@contextmanager
def appearing_folder(out: Path) -> Iterator[Path]:
    """A folder to write into, which appears as `out` at the end of the block. Raises InvalidInput
    if `out` is in use."""
    out = out.absolute()
    _refuse_used(out)
    out.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.{uuid.uuid4().hex[:12]}.unfinished")
    unfinished.mkdir(_FOLDER_MODE)
    try:
        yield unfinished
        _refuse_used(out)
        if out.exists():
            out.rmdir()
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_directory(out.parent)


def _refuse_used(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        why = "it is not empty; name an empty or new one"
        raise InvalidInput(what=f"The directory {out}", why=why)
    if out.exists() and not out.is_dir():
        raise InvalidInput(what=f"The directory {out}", why="it is a file")
