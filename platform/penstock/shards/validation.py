"""Validation of shards: the rules of single rows, and those among rows."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from penstock.shards.manifest import RouteRows, StoredShard, check_digest, files_of, read_part
from penstock.shards.rules import BrokenRule, first_broken
from penstock.shards.schema import SHARD_ROWS, SORTED_BY, Rows, group_starts
from penstock.shards.shard import ShardDamaged, ShardInvalid
from penstock.shards.writer import count_rows


def digests_of(rows: Rows, name: str) -> np.ndarray:
    texts = rows.column(name).to_pylist()
    return np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], np.uint64)


class DigestSet:
    """A set of text digests. Two of ten million texts collide once in 400,000 times."""

    def __init__(self) -> None:
        #: Sorted arrays, each at least twice as long as the next.
        self._levels: list[np.ndarray] = []

    def add(self, digests: np.ndarray) -> int | None:
        """Add digests; returns the first that was already there, if any."""
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
#: Columns of a row that are compared with the next row.
_CARRIED = [*SORTED_BY, "session_id", "is_last_step", "n_branches"]


class ShardValidator:
    """Checks the rows of a shard in order, in pieces of any size."""

    def __init__(self) -> None:
        self._file = ""
        self._rows_before = 0
        self._last: dict[str, Any] | None = None
        self._samples, self._rollouts, self._branches = DigestSet(), DigestSet(), DigestSet()
        self._trained = DigestSet()

    def begin_file(self, name: str) -> None:
        """Begin a file. No group continues into it."""
        self._file = name
        self._rows_before = 0

    def check(self, table: pa.Table, routes: pa.Table | None = None) -> None:
        """Check rows with their `routes`. Raises ShardInvalid for the first broken row."""
        if (broken := self._first_broken(table, routes)) is not None:
            schema = broken.rule == "schema"
            raise ShardInvalid(
                file=self._file or "(rows)",
                row=self._rows_before + broken.row,
                sample="?" if schema else table["sample_id"][broken.row].as_py() or "?",
                rule=broken.rule,
                why=broken.why,
            )
        if table.num_rows:
            self._rows_before += table.num_rows
            self._last = table.slice(table.num_rows - 1).select(_CARRIED).to_pylist()[0]

    def _first_broken(self, table: pa.Table, routes: pa.Table | None) -> BrokenRule | None:
        if not table.schema.equals(SHARD_ROWS):
            differing = [
                f"{own} where {right} is expected"
                for own, right in zip(table.schema, SHARD_ROWS, strict=False)
                if not own.equals(right)
            ]
            difference = [*differing, f"{len(table.schema)} of {len(SHARD_ROWS)}"][0]
            return BrokenRule(0, "schema", f"the columns are not those of a shard: {difference}")
        if not table.num_rows:
            return None
        rows = Rows(table)
        if (broken := first_broken(rows)) is not None:
            return broken
        others = [*self._neighbours(rows), *self._repeated(rows), *_broken_routes(rows, routes)]
        return min(others, key=lambda rule: rule.row, default=None)

    def _neighbours(self, rows: Rows) -> Iterator[BrokenRule]:
        carried = rows.table.select(_CARRIED).to_pylist()
        last = self._last
        told, first = (carried, 1) if last is None else ([last, *carried], 0)
        for row, (before, own) in enumerate(pairwise(told), first):
            if [own[name] for name in SORTED_BY] < [before[name] for name in SORTED_BY]:
                yield BrokenRule(row, "order", f"rows must be sorted by {', '.join(SORTED_BY)}")
            if before["rollout_id"] == own["rollout_id"] and before["is_last_step"]:
                yield BrokenRule(row, "last_step", "it follows the last step of its rollout")
            same_session = before["session_id"] == own["session_id"]
            if same_session and before["n_branches"] != own["n_branches"]:
                why = "other rows of its session have another number of branches"
                yield BrokenRule(row, "branch_count", why)
        began_before = last is not None and carried[0]["group_id"] == last["group_id"]
        if began_before and not self._rows_before:
            yield BrokenRule(0, "groups_in_one_file", "its group began in the file before")

    def _repeated(self, rows: Rows) -> Iterator[BrokenRule]:
        """Find repetitions of what must be unique in a shard."""
        if (row := self._samples.add(digests_of(rows, "sample_id"))) is not None:
            yield BrokenRule(row, "sample_unique", "another sample has the same id")
        before = self._last["rollout_id"] if self._last else None
        begins = np.flatnonzero(group_starts(rows.table["rollout_id"], before))
        if (at := self._rollouts.add(digests_of(rows, "rollout_id")[begins])) is not None:
            why = "its rollout has rows elsewhere too"
            yield BrokenRule(int(begins[at]), "siblings", why)
        sessions = digests_of(rows, "session_id")
        index = rows.numbers("branch_index").astype(np.uint64)
        if (row := self._branches.add(_mixed(sessions, index))) is not None:
            yield BrokenRule(row, "branch_unique", "its session already has a row for this branch")
        # The output of a turn is trained in one sample; elsewhere it is context. A turn is
        # identified by its event in the session, or by its number in the trajectory.
        spans = rows.spans
        of_row = spans.rows
        trained = rows.trained_in_spans > 0
        events = spans.values.field("event_seq")
        known = events.is_valid().to_numpy(zero_copy_only=False)
        number = np.where(known, events.fill_null(0).to_numpy(), spans.numbers("turn"))
        within = np.where(known, sessions[of_row], ~digests_of(rows, "trajectory_id")[of_row])
        keys = _mixed(within, number.astype(np.uint64))[trained]
        own_rows = of_row[trained]
        pairs = np.stack([keys, own_rows.astype(np.uint64)])
        _, first = np.unique(pairs, axis=1, return_index=True)
        first.sort()
        if (at := self._trained.add(keys[first])) is not None:
            why = "one of its turns is also trained in another sample"
            yield BrokenRule(int(own_rows[first[at]]), "trained_once", why)


def _mixed(digests: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    mixed = digests ^ (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = mixed * np.uint64(0xD6E8FEB86659FD93)
    return np.asarray(mixed ^ (mixed >> np.uint64(32)))


def _broken_routes(rows: Rows, routes: pa.Table | None) -> Iterator[BrokenRule]:
    """Find wrong counts of routed experts: one per token, or one less, since the last token was
    never read."""
    counts = rows.column("routed_rows").to_pylist()
    if routes is None:
        for row in np.flatnonzero(rows.present("routed_rows"))[:1].tolist():
            yield BrokenRule(row, "routes", "the side file with its routed experts is missing")
        return
    if routes["sample_id"].to_pylist() != rows.column("sample_id").to_pylist():
        yield BrokenRule(0, "routes", "the side file belongs to other rows")
        return
    all_facts = routes.drop_columns("routed_experts").to_pylist()
    pairs = zip(routes["routed_experts"], all_facts, strict=True)
    for row, (content, facts) in enumerate(pairs):
        why = _broken_route(content, facts, counts[row], int(rows.tokens[row]))
        if why:
            yield BrokenRule(row, "routes", why)


def _broken_route(
    content: Any, facts: dict[str, Any], count: int | None, tokens: int
) -> str | None:
    if not content.is_valid or count is None:
        return "routed_rows and the side file disagree" if content.is_valid or count else None
    layers, topk, kind, start = (facts[name] for name in ("layers", "topk", "dtype", "start"))
    if kind not in _ROUTE_TYPES or not layers or not topk:
        return f"its experts are {layers} × {topk} of {kind}"
    buffer = content.as_buffer()
    if buffer.size != count * layers * topk * np.dtype(kind).itemsize:
        return f"its experts have {buffer.size} bytes, which do not make {count} rows"
    if count + (start or 0) not in (tokens, tokens - 1):
        return f"its experts have {count} rows, but it has {tokens} tokens"
    experts = np.frombuffer(buffer, kind).reshape(-1, topk)
    if experts.size and experts.min() < 0:
        return "an expert is below 0"
    in_order = np.sort(experts, axis=1)
    twice = (in_order[:, 1:] == in_order[:, :-1]).any()
    return "a token chooses an expert twice" if twice else None


def validate_shard(shard: StoredShard) -> dict[str, Any]:
    """Read and count all rows. Raises ShardInvalid for the first broken row, ShardDamaged if a file
    differs from the manifest."""
    validator = ShardValidator()
    statuses: Counter[str] = Counter()
    sessions: set[str] = set()
    tokens = 0
    for part in shard.manifest.files:
        validator.begin_file(part.name)
        counts: Counter[str] = Counter()
        ends: list[str] = []
        path, side = shard.path(part), None
        if part.routes is not None:
            side = RouteRows(read_part(shard.store, shard.path(part.routes), part.routes))
        for rows in read_part(shard.store, path, part):
            validator.check(rows, side.take(rows.num_rows) if side else None)
            groups = rows["group_id"]
            counts.update(count_rows(rows, group_starts(groups, ends[-1] if ends else None)))
            ends = [*ends[:1], *groups.take([0, len(groups) - 1]).to_pylist()]
            statuses.update(rows["status"].to_pylist())
            sessions.update(rows["session_id"].unique().to_pylist())
        edges = {"first": ends[0] if ends else None, "last": ends[-1] if ends else None}
        for name, value in (counts | edges).items():
            if value != getattr(part, name):
                why = f"{name}: {value}, the manifest says {getattr(part, name)}"
                raise ShardDamaged(path=path, why=why)
        tokens += counts["tokens"]
    counted = {"samples": statuses.total(), "sessions": len(sessions)}
    return counted | {"tokens": tokens, "status": dict(statuses)}


class ShardProof(msgspec.Struct, frozen=True):
    """The result of verification; `problems` is empty if the shard matches its manifest."""

    files: int
    samples: int
    tokens: int
    problems: list[str]


def verify_shard(shard: StoredShard) -> ShardProof:
    """Read every byte twice: for the checksums, and for the rules."""
    problems = []
    files, counts = list(files_of(shard.manifest)), shard.manifest.counts
    for part in files:
        try:
            check_digest(shard.store, shard.path(part), part)
        except ShardDamaged as error:
            problems.append(str(error))
    if not problems:
        try:
            for name, count in validate_shard(shard).items():
                if count != (stated := getattr(counts, name)):
                    problems.append(f"{name}: the files have {count}, the manifest says {stated}")
        except (ShardInvalid, ShardDamaged) as error:
            problems.append(str(error))
    return ShardProof(len(files), counts.samples, counts.tokens, problems)
