"""Reading shards for training: the same samples in the same order on every machine.

Only the shard, the seed and the epoch decide the order and the global batches. The number of ranks,
threads and prefetched batches does not.
"""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, cast

import msgspec

from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.shards.batches import Batch, BatchBudget, check_columns, make_batch
from penstock.shards.local_copies import CACHE_FOLDER, ColumnCopies, LocalCopies
from penstock.shards.shard import PositionRefused, ShardSettings
from penstock.shards.shard_places import shard_place
from penstock.shards.sources import (
    Exhausted,
    Mixture,
    OpenShard,
    Order,
    ShardCursor,
    ShardPosition,
    global_batches,
)

_STATE_FORMAT = 1


class ReadingOptions(TypedDict, total=False):
    """The options of a reader; docs/shards.md describes them."""

    rank: int
    world: int
    seed: int
    epoch: int
    batch_samples: int | None
    batch_tokens: int | None
    columns: Sequence[str] | None
    shuffle: bool
    prefetch: int | None
    threads: int | None
    cache: bool | str | Path | None
    column_copies: bool | None
    tenant: str
    key: str | None


#: All other options are None.
_GIVEN = {"rank": 0, "world": 1, "seed": 0, "epoch": 0, "shuffle": True, "tenant": TENANT_DEFAULT}
DEFAULTS = cast(ReadingOptions, dict.fromkeys(ReadingOptions.__annotations__) | _GIVEN)


def read_shard(data: str | Path, shard_id: str, **options: Unpack[ReadingOptions]) -> "ShardReader":
    """Read a shard from a data directory, a store's URL, or a service's URL. `shard_id` is its id
    or the beginning of it; in a data directory and at a service also a name, which means the newest
    shard of it.

    A global batch has at most `batch_samples` samples or `batch_tokens` tokens over all `world`
    ranks; the default is 64 samples. `columns` are listed in docs/shards.md. `cache` is the
    directory of local copies, or whether to keep any. `tenant` is the owner in a data directory or
    store; at a service the `key` decides, else PENSTOCK_KEY or `penstock login`. Raises
    ShardUnknown, ShardMissing, LakeMissing.
    """
    return read_mixture(data, [(shard_id, 1.0)], exhausted="stop", **options)


def read_mixture(
    data: str | Path,
    shards: Sequence[tuple[str, float]],
    *,
    exhausted: Exhausted,
    **options: Unpack[ReadingOptions],
) -> "ShardReader":
    """Read several shards with weights: each batch has samples in that proportion. `exhausted` says
    what happens at the end of one: `stop`, `drop` it and go on with the others, or `repeat` it
    until all were read once."""
    mixture = Mixture(tuple(float(weight) for _, weight in shards), exhausted)
    if strange := options.keys() - DEFAULTS.keys():
        raise TypeError(f"a reader has no option {min(strange)!r}")
    plan: ReadingOptions = DEFAULTS | options
    if not 0 <= plan["rank"] < plan["world"]:
        why = f"it must be from 0 to {plan['world'] - 1}"
        raise InvalidInput(what=f"The rank {plan['rank']}", why=why)
    for name, number in (("prefetch", plan["prefetch"]), ("threads", plan["threads"])):
        if number is not None and number < 1:
            raise InvalidInput(what=f"{name}={number}", why="it must be at least 1")
    samples, tokens = plan["batch_samples"], plan["batch_tokens"]
    budget = BatchBudget(64 if samples is tokens is None else samples, tokens)
    columns, cache = check_columns(plan["columns"]), plan["cache"]
    place = shard_place(data, tenant=plan["tenant"], key=plan["key"])
    is_own = cache in (None, True, False)
    directory = place.settings.data / CACHE_FOLDER if is_own else Path(str(cache))
    bytes_max = place.settings.room(ShardSettings).shard_cache_bytes_max
    local, copies = LocalCopies(directory, bytes_max), None
    if cache is not False and not (place.store.local and is_own):
        copies = local
    if copies is None and not place.random_access:
        why = "files of a service need copies: name a directory for them, or omit it"
        raise InvalidInput(what="cache=False", why=why)
    ready, making = None, plan["column_copies"]
    if making or (making is None and cache is not False):
        ready = ColumnCopies(local, making=bool(making))
    opened = [OpenShard(place.stored(shard), columns, copies, ready) for shard, _ in shards]
    return ShardReader(opened, mixture, budget, plan)


class ShardReader:
    """An iterable of batches. A loop over it is an epoch, or the rest of one; the next loop is the
    next epoch. Only one loop runs at a time: a second one ends the first."""

    def __init__(
        self,
        shards: Sequence[OpenShard],
        mixture: Mixture,
        budget: BatchBudget,
        plan: ReadingOptions,
    ) -> None:
        self._shards = shards
        self._mixture = mixture
        self._budget = budget
        self._plan = plan
        self._positions = [ShardPosition(plan["epoch"], 0, 0, 0) for _ in shards]
        self._batches: BatchPrefetch | None = None

    def __iter__(self) -> Iterator[Batch]:
        self.close()
        batches = self._batches = BatchPrefetch(self._make(), self._plan["prefetch"] or 2)
        try:
            for batch in batches:
                self._positions = msgspec.convert(batch.state["sources"], list[ShardPosition])
                yield batch
            self._positions = [ShardPosition(at.epoch + 1, 0, 0, 0) for at in self._positions]
        finally:
            batches.close()

    @property
    def epoch(self) -> int:
        """The epoch of the first source."""
        return self._positions[0].epoch

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch, as JSON values."""
        return self._state(self._positions)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a position, with any number of ranks and any batch size. Raises
        PositionRefused for other shards, another seed or another mixture."""
        try:
            if state["format"] != _STATE_FORMAT:
                raise PositionRefused(why=f"it has the format {state['format']!r}")
            own = self.state_dict()
            pairs = [(name, state[name], own[name]) for name in ("seed", "shuffled", "exhausted")]
            pairs.append(("number of shards", len(state["sources"]), len(own["sources"])))
            for theirs, ours in zip(state["sources"], own["sources"], strict=False):
                pairs += [(name, theirs[name], ours[name]) for name in ("shard", "weight")]
            for name, theirs, ours in pairs:
                if theirs != ours:
                    raise PositionRefused(why=f"its {name} is {theirs}, the reader's is {ours}")
            positions = msgspec.convert(state["sources"], list[ShardPosition])
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise PositionRefused(why=f"it is not a state of a reader: {error!r}") from error
        for shard, position in zip(self._shards, positions, strict=True):
            rows = shard.manifest.rows
            if not 0 <= position.samples_consumed <= rows or position.epoch < 0:
                why = f"sample {position.samples_consumed} of epoch {position.epoch}, of {rows}"
                raise PositionRefused(why=f"the position does not exist: {why}")
        self.close()
        self._positions = positions

    def close(self) -> None:
        """End the threads. A later loop resumes where the last one stopped."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _make(self) -> Generator[Batch]:
        plan, budget = self._plan, self._budget
        with ExitStack() as closing:
            for shard in self._shards:
                closing.callback(shard.files.close)
            threads = plan["threads"] or 2
            pool = closing.enter_context(ThreadPoolExecutor(threads, "penstock-decode"))
            try:
                cursors = []
                for shard, at in zip(self._shards, self._positions, strict=True):
                    seed, shuffled = plan["seed"], plan["shuffle"]
                    order = partial(Order, shard.id, shard.chunks, seed, shuffled=shuffled)
                    cursors.append(ShardCursor(shard, order, budget, at, pool))
                for groups in global_batches(cursors, self._mixture, budget.limit):
                    state = self._state([cursor.position for cursor in cursors])
                    yield make_batch(groups, budget, plan["rank"], plan["world"], state)
                    for cursor in cursors:
                        cursor.look_ahead()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _state(self, positions: Sequence[ShardPosition]) -> dict[str, Any]:
        sources = zip(self._shards, self._mixture.weights, positions, strict=True)
        return {
            "format": _STATE_FORMAT,
            "seed": self._plan["seed"],
            "shuffled": self._plan["shuffle"],
            "exhausted": self._mixture.exhausted,
            "batch_samples": self._budget.samples,
            "batch_tokens": self._budget.tokens,
            "world": self._plan["world"],
            "sources": [
                {"shard": shard.id, "weight": weight, **vars(position)}
                for shard, weight, position in sources
            ],
        }


class BatchPrefetch(Iterator[Batch]):
    """Batches that a thread makes ahead. `close` ends the thread; whoever waits gets
    InvalidInput."""

    def __init__(self, batches: Generator[Batch], count: int) -> None:
        self._batches = batches
        self._closed = False
        self._pool = ThreadPoolExecutor(1, "penstock-reader")
        self._ahead = deque(self._pool.submit(next, batches, None) for _ in range(count + 1))

    def __next__(self) -> Batch:
        batch = None
        try:
            batch = self._ahead.popleft().result()
            self._ahead.append(self._pool.submit(next, self._batches, None))
        except (CancelledError, RuntimeError):
            if not self._closed:
                raise
        if self._closed:
            why = "the reader was closed, or another loop over it began"
            raise InvalidInput(what="The loop over a reader", why=why)
        if batch is None:
            raise StopIteration
        return batch

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(cancel_futures=True)
        self._batches.close()
