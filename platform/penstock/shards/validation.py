"""Whether a shard keeps every rule: those of single rows (rules.py), and those among rows."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from penstock.shards.errors import ShardDamaged, ShardInvalid
from penstock.shards.files import check_digest, files_of, read_part, read_rows
from penstock.shards.manifest import Manifest, PartFile, folder_of
from penstock.shards.rows import Rows, group_starts
from penstock.shards.rules import BrokenRule, ModelLimits, first_broken
from penstock.shards.schema import SHARD_ROWS, SORTED_BY
from penstock.storage import ObjectStore


def digests_of(texts: Iterable[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], np.uint64)


class DigestSet:
    """Two texts of ten million have the same digest once in 400,000 times."""

    def __init__(self) -> None:
        #: Sorted, each at least twice as long as the next.
        self._levels: list[np.ndarray] = []

    def add(self, digests: np.ndarray) -> int | None:
        """Which is the first that was there already, if any."""
        ordered = np.argsort(digests, kind="stable")
        own = digests[ordered]
        again = np.zeros(len(own), bool)
        again[ordered[1:][own[1:] == own[:-1]]] = True
        for level in self._levels:
            at = np.minimum(np.searchsorted(level, digests), len(level) - 1)
            again |= level[at] == digests
        if len(own):
            self._levels.append(own)
        while len(self._levels) > 1 and len(self._levels[-2]) < 2 * len(self._levels[-1]):
            pair = self._levels.pop(), self._levels.pop()
            self._levels.append(np.sort(np.concatenate(pair), kind="stable"))
        return int(again.argmax()) if again.any() else None


_ROUTE_TYPES = ("uint8", "int16", "uint16", "int32")


class ShardValidator:
    """Is shown all rows of a shard in order, as many at a time as is convenient."""

    def __init__(self, known: ModelLimits | None = None) -> None:
        self._known = known or ModelLimits()
        self._file = ""
        self._rows_before = 0
        self._last: dict[str, Any] | None = None
        self._samples, self._rollouts, self._branches = DigestSet(), DigestSet(), DigestSet()
        self._trained = DigestSet()

    def begin_file(self, name: str) -> None:
        """The rows that follow are of this file. A group does not go on into it."""
        self._file = name
        self._rows_before = 0

    def check(self, table: pa.Table, routes: pa.Table | None = None) -> None:
        """`routes` are those of the same rows. Raises ShardInvalid for the first broken row."""
        if not table.schema.equals(SHARD_ROWS):
            why = f"the columns are not those of a shard: {_difference(table.schema)}"
            raise self._invalid(BrokenRule(0, "schema", why), "")
        if not table.num_rows:
            return
        rows = Rows(table)
        broken = first_broken(rows, self._known)
        if broken is None:
            found = [*self._among_rows(rows), *_routes_broken(rows, routes, self._known)]
            broken = min(found, key=lambda one: one.row, default=None)
        if broken is not None:
            raise self._invalid(broken, table["sample_id"][broken.row].as_py())
        self._rows_before += table.num_rows
        self._last = table.slice(table.num_rows - 1).select(_CARRIED).to_pylist()[0]

    def _among_rows(self, rows: Rows) -> Iterator[BrokenRule]:
        columns = {name: rows.column(name).to_pylist() for name in _CARRIED}
        last = self._last
        if last is not None:
            columns = {name: [last[name], *values] for name, values in columns.items()}
        for row, rule, why in _neighbours(columns, 1 if last is None else 0):
            yield BrokenRule(row, rule, why)
        if (
            last is not None
            and not self._rows_before
            and columns["group_id"][1] == last["group_id"]
        ):
            yield BrokenRule(0, "groups_in_one_file", "its group began in the file before")
        yield from self._repeated(rows)

    def _repeated(self, rows: Rows) -> Iterator[BrokenRule]:
        if (row := self._samples.add(_digests(rows, "sample_id"))) is not None:
            yield BrokenRule(row, "sample_unique", "another sample has the same id")
        before = self._last["rollout_id"] if self._last else None
        begins = np.flatnonzero(group_starts(rows.table["rollout_id"], before))
        if (at := self._rollouts.add(_digests(rows, "rollout_id")[begins])) is not None:
            yield BrokenRule(int(begins[at]), "siblings", "rows of its rollout stand elsewhere too")
        sessions = _digests(rows, "session_id")
        index = rows.numbers("branch_index").astype(np.uint64)
        if (row := self._branches.add(_mixed(sessions, index))) is not None:
            yield BrokenRule(row, "branch_unique", "its session has another row for this branch")
        yield from self._trained_again(rows, sessions)

    def _trained_again(self, rows: Rows, sessions: np.ndarray) -> Iterator[BrokenRule]:
        """What a turn wrote is trained in one sample: elsewhere it is context. A turn is known by
        its event in the session, or else by its number in the trajectory."""
        spans = rows.spans
        of_row = spans.rows
        trained = rows.trained_in_spans > 0
        events = spans.values.field("event_seq")
        known = events.is_valid().to_numpy(zero_copy_only=False)
        number = np.where(known, events.fill_null(0).to_numpy(), spans.numbers("turn"))
        where = np.where(known, sessions[of_row], ~_digests(rows, "trajectory_id")[of_row])
        keys = _mixed(where, number.astype(np.uint64))[trained]
        own_rows = of_row[trained]
        _, first = np.unique(
            np.stack([keys, own_rows.astype(np.uint64)]), axis=1, return_index=True
        )
        first.sort()
        if (at := self._trained.add(keys[first])) is not None:
            why = "a turn of it is trained in another sample too"
            yield BrokenRule(int(own_rows[first[at]]), "trained_once", why)

    def _invalid(self, broken: BrokenRule, sample: str) -> ShardInvalid:
        return ShardInvalid(
            file=self._file or "(rows)",
            row=self._rows_before + broken.row,
            sample=sample or "?",
            rule=broken.rule,
            why=broken.why,
        )


_CARRIED = [*SORTED_BY, "session_id", "is_last_step", "n_branches"]


def _neighbours(columns: dict[str, list[Any]], first: int) -> Iterator[tuple[int, str, str]]:
    """Rules between a row and the one before it. `first` is the number of the second row."""
    keys = list(zip(*(columns[name] for name in SORTED_BY), strict=True))
    same_session = columns["session_id"]
    for number, (before, own) in enumerate(pairwise(keys)):
        row = number + first
        if own < before:
            yield row, "order", f"rows are sorted by {', '.join(SORTED_BY)}"
        if before[1] == own[1] and columns["is_last_step"][number]:
            yield row, "last_step", "it follows the last step of its rollout"
        counts = columns["n_branches"][number : number + 2]
        if same_session[number] == same_session[number + 1] and counts[0] != counts[1]:
            yield row, "branch_count", "rows of its session have another number of branches"


def _digests(rows: Rows, name: str) -> np.ndarray:
    return digests_of(rows.column(name).to_pylist())


def _mixed(digests: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    mixed = (digests ^ (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(
        0xD6E8FEB86659FD93
    )
    scattered: np.ndarray = mixed ^ (mixed >> np.uint64(32))
    return scattered


def _routes_broken(rows: Rows, routes: pa.Table | None, known: ModelLimits) -> Iterator[BrokenRule]:
    """Routed experts are as many as the tokens, or one less: the last was never read."""
    said = rows.column("routed_rows").to_pylist()
    if routes is None:
        for row, count in enumerate(said):
            if count is not None:
                yield BrokenRule(row, "routes", "there is no side file with its routed experts")
        return
    if routes["sample_id"].to_pylist() != rows.column("sample_id").to_pylist():
        yield BrokenRule(0, "routes", "the side file has other rows")
        return
    columns = (routes[name].combine_chunks() for name in routes.column_names[1:])
    for row, (content, *facts) in enumerate(zip(*columns, strict=True)):
        values = [one.as_py() for one in facts]
        why = _route_broken(content, values, said[row], int(rows.tokens[row]), known)
        if why:
            yield BrokenRule(row, "routes", why)


def _route_broken(
    content: Any, facts: list[Any], said: int | None, tokens: int, known: ModelLimits
) -> str | None:
    if not content.is_valid or said is None:
        return "routed_rows and the side file disagree" if content.is_valid or said else None
    layers, topk, kind, start = facts
    if kind not in _ROUTE_TYPES or not layers or not topk:
        return f"its experts are {layers} × {topk} of {kind}"
    buffer = content.as_buffer()
    if buffer.size != said * layers * topk * np.dtype(kind).itemsize:
        return f"its experts have {buffer.size} bytes, which are not {said} rows"
    if said + (start or 0) not in (tokens, tokens - 1):
        return f"its experts have {said} rows, and it has {tokens} tokens"
    experts = np.frombuffer(buffer, kind).reshape(-1, topk)
    if experts.size and (experts.min() < 0 or (known.experts and experts.max() >= known.experts)):
        return f"an expert is not one of {known.experts}"
    for one in range(topk):
        for other in range(one):
            if (experts[:, one] == experts[:, other]).any():
                return "an expert is chosen twice for a token"
    return None


def _difference(schema: pa.Schema) -> str:
    for own, right in zip(schema, SHARD_ROWS, strict=False):
        if not own.equals(right):
            return f"{own} where {right} is expected"
    return f"{len(schema)} of {len(SHARD_ROWS)}"


def validate_shard(
    store: ObjectStore, manifest: Manifest, known: ModelLimits | None = None
) -> None:
    """Read all rows. Raises ShardInvalid for the first that breaks a rule, and ShardDamaged where
    a file is not what the manifest says."""
    validator = ShardValidator(known)
    for part in manifest.files:
        validator.begin_file(part.name)
        counted = _PartCounts()
        path = f"{folder_of(manifest.id)}/{part.name}"
        sides = _sides(store, manifest, part)
        for rows in read_part(store, path, part):
            routes = sides.take(rows.num_rows) if sides else None
            validator.check(rows, routes)
            counted.add(rows)
        counted.compare(path, part)


class _PartCounts:
    """What the manifest says of a part, as it is."""

    def __init__(self) -> None:
        self._rows = self._tokens = self._trainable = self._groups = 0
        self._first: str | None = None
        self._last: str | None = None

    def add(self, rows: pa.Table) -> None:
        groups = rows["group_id"]
        self._groups += int(group_starts(groups, self._last).sum())
        self._first = groups[0].as_py() if self._first is None else self._first
        self._last = groups[-1].as_py()
        self._rows += rows.num_rows
        self._tokens += int(rows["n_tokens"].to_numpy().sum())
        self._trainable += int(rows["n_trainable"].to_numpy().sum())

    def compare(self, path: str, part: PartFile) -> None:
        for name in ("rows", "tokens", "trainable", "groups", "first", "last"):
            found, said = getattr(self, f"_{name}"), getattr(part, name)
            if found != said:
                raise ShardDamaged(path=path, why=f"{name}: {found}, the manifest says {said}")


class _RouteRows:
    """Rows of a side file, as many as are asked for."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._left: pa.Table | None = None

    def take(self, count: int) -> pa.Table:
        parts = [] if self._left is None else [self._left]
        while sum(one.num_rows for one in parts) < count:
            one = next(self._tables, None)
            if one is None:
                break
            parts.append(one)
        rows = pa.concat_tables(parts)
        self._left = rows.slice(count)
        return rows.slice(0, count)


def _sides(store: ObjectStore, manifest: Manifest, part: PartFile) -> _RouteRows | None:
    if part.routes is None:
        return None
    path = f"{folder_of(manifest.id)}/{part.routes.name}"
    return _RouteRows(read_part(store, path, part.routes))


@dataclass(frozen=True)
class ShardProof:
    """`problems` is empty where the shard is what its manifest says."""

    files: int
    samples: int
    tokens: int
    problems: list[str]


def verify_shard(store: ObjectStore, manifest: Manifest) -> ShardProof:
    """Reads every byte twice: for the checksums, and for the rules."""
    problems = list(_damage(store, manifest))
    if not problems:
        try:
            validate_shard(store, manifest)
        except (ShardInvalid, ShardDamaged) as error:
            problems.append(str(error))
    if not problems:
        problems += _miscounted(store, manifest)
    counts = manifest.counts
    return ShardProof(len(list(files_of(manifest))), counts.samples, counts.tokens, problems)


def _damage(store: ObjectStore, manifest: Manifest) -> Iterator[str]:
    for part in files_of(manifest):
        try:
            check_digest(store, f"{folder_of(manifest.id)}/{part.name}", part)
        except ShardDamaged as error:
            yield str(error)


def _miscounted(store: ObjectStore, manifest: Manifest) -> Iterator[str]:
    """What the manifest says of all files together."""
    statuses: Counter[str] = Counter()
    sessions: set[str] = set()
    tokens = 0
    for rows in read_rows(store, manifest, ["session_id", "status", "n_tokens"]):
        statuses.update(rows["status"].to_pylist())
        sessions.update(rows["session_id"].unique().to_pylist())
        tokens += sum(rows["n_tokens"].to_pylist())
    counts = manifest.counts
    found = {
        "samples": (statuses.total(), counts.samples),
        "sessions": (len(sessions), counts.sessions),
        "tokens": (tokens, counts.tokens),
        "statuses": (dict(statuses), dict(counts.status)),
    }
    for name, (there, said) in found.items():
        if there != said:
            yield f"{name}: the files have {there}, the manifest says {said}"
