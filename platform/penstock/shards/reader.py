"""Reading shards for training: the same samples in the same order on every machine.

The shard, the seed and the epoch decide which samples come, in which order and in which global
batches. The number of ranks, of threads and of batches made ahead does not.
"""

import atexit
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Generic, Self, TypeVar
from weakref import WeakSet

from penstock.errors import InvalidInput
from penstock.settings import load_settings
from penstock.shards.balance import BatchBudget
from penstock.shards.batches import Batch, check_columns, make_batch
from penstock.shards.errors import PositionRefused
from penstock.shards.files import LocalCopies
from penstock.shards.manifest import read_manifest
from penstock.shards.settings import ShardSettings
from penstock.shards.sources import (
    Exhausted,
    Mixture,
    OpenShard,
    Order,
    ShardCursor,
    ShardPosition,
    global_batches,
)
from penstock.storage import open_store

BATCH_SAMPLES = 64
#: Batches made ahead, and threads that decode, where the caller does not say.
_BATCHES_AHEAD = 2
_THREADS = 2
_STATE_FORMAT = 1

T = TypeVar("T")


@dataclass(frozen=True)
class ReadingPlan:
    mixture: Mixture
    budget: BatchBudget
    rank: int
    world: int
    seed: int
    shuffled: bool
    batches_max: int
    threads: int


class ShardReader:
    """An iterable of batches. A loop over it is an epoch, or what is left of one; the next loop is
    the next epoch. One loop at a time: a second one ends the first."""

    def __init__(self, shards: Sequence[OpenShard], plan: ReadingPlan, epoch: int) -> None:
        self._shards = list(shards)
        self._plan = plan
        self._positions = [ShardPosition(epoch) for _ in shards]
        self._batches: Prefetch[Batch] | None = None

    def __iter__(self) -> Iterator[Batch]:
        self.close()
        batches = Prefetch(self._make, self._plan.batches_max, "penstock-reader")
        self._batches = batches
        try:
            for batch in batches:
                self._positions = _positions_in(batch.state)
                yield batch
            # Each source goes on at the start of an epoch of its own.
            self._positions = [ShardPosition(position.epoch + 1) for position in self._positions]
        except PrefetchClosed:
            what = "The loop over a reader"
            why = "the reader was closed, or another loop over it began"
            raise InvalidInput(what=what, why=why) from None
        finally:
            batches.close()

    @property
    def epoch(self) -> int:
        """Of the first source."""
        return self._positions[0].epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the reader stands, after the batch that it gave out last; fit for JSON."""
        return self._state(self._positions)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, with any number of ranks, and batches of any size. Raises
        PositionRefused for a state of other shards, another seed or another mixture."""
        positions = self._checked(state)
        self.close()
        self._positions = positions

    def close(self) -> None:
        """End the threads. A later loop goes on where the last one stopped."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _make(self) -> Iterator[Batch]:
        plan = self._plan

        def order(shard: OpenShard, epoch: int) -> Order:
            return Order(shard.id, shard.chunks, plan.seed, epoch, plan.shuffled)

        with ExitStack() as closing:
            for shard in self._shards:
                closing.callback(shard.close)
            pool = closing.enter_context(ThreadPoolExecutor(plan.threads, "penstock-decode"))
            try:
                cursors = [
                    ShardCursor(shard, partial(order, shard), plan.budget, position, pool)
                    for shard, position in zip(self._shards, self._positions, strict=True)
                ]
                for groups in global_batches(cursors, plan.mixture, plan.budget.limit):
                    state = self._state([cursor.position for cursor in cursors])
                    yield make_batch(groups, plan.budget, plan.rank, plan.world, state)
                    for cursor in cursors:
                        cursor.look_ahead()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _state(self, positions: Sequence[ShardPosition]) -> dict[str, Any]:
        plan = self._plan
        return {
            "format": _STATE_FORMAT,
            "seed": plan.seed,
            "shuffled": plan.shuffled,
            "exhausted": plan.mixture.exhausted,
            "batch_samples": plan.budget.samples,
            "batch_tokens": plan.budget.tokens,
            "world": plan.world,
            "sources": [
                {"shard": shard.id, "weight": weight, **asdict(position)}
                for shard, weight, position in zip(
                    self._shards, plan.mixture.weights, positions, strict=True
                )
            ],
        }

    def _checked(self, state: Mapping[str, Any]) -> list[ShardPosition]:
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
                    raise PositionRefused(why=f"its {name} is {theirs}, and the reader's {ours}")
            positions = _positions_in(state)
        except (KeyError, TypeError) as error:
            raise PositionRefused(why=f"it is no state of a reader: {error!r}") from error
        for shard, position in zip(self._shards, positions, strict=True):
            rows = shard.manifest.rows
            if not 0 <= position.samples_consumed <= rows or position.epoch < 0:
                why = f"sample {position.samples_consumed} of epoch {position.epoch}, of {rows}"
                raise PositionRefused(why=f"there is no such place: {why}")
        return positions


def _positions_in(state: Mapping[str, Any]) -> list[ShardPosition]:
    names = [field.name for field in fields(ShardPosition)]
    return [
        ShardPosition(**{name: int(source[name]) for name in names}) for source in state["sources"]
    ]


def read_shard(
    data: str | Path,
    shard_id: str,
    *,
    rank: int = 0,
    world: int = 1,
    seed: int = 0,
    epoch: int = 0,
    batch_samples: int | None = None,
    batch_tokens: int | None = None,
    columns: Sequence[str] | None = None,
    shuffle: bool = True,
    prefetch: int | None = None,
    threads: int | None = None,
    cache: bool | str | Path | None = None,
) -> ShardReader:
    """A reader of the shard `shard_id` in a data directory, or in a store named by its URL.

    A global batch has at most `batch_samples` samples or `batch_tokens` tokens, over all `world`
    ranks; 64 samples when neither is given. `columns` are those of docs/loader.md. `cache` says
    where copies of files from S3 are kept, or whether any are.
    """
    return read_mixture(
        data,
        [(shard_id, 1.0)],
        exhausted="stop",
        rank=rank,
        world=world,
        seed=seed,
        epoch=epoch,
        batch_samples=batch_samples,
        batch_tokens=batch_tokens,
        columns=columns,
        shuffle=shuffle,
        prefetch=prefetch,
        threads=threads,
        cache=cache,
    )


def read_mixture(
    data: str | Path,
    shards: Sequence[tuple[str, float]],
    *,
    exhausted: Exhausted,
    rank: int = 0,
    world: int = 1,
    seed: int = 0,
    epoch: int = 0,
    batch_samples: int | None = None,
    batch_tokens: int | None = None,
    columns: Sequence[str] | None = None,
    shuffle: bool = True,
    prefetch: int | None = None,
    threads: int | None = None,
    cache: bool | str | Path | None = None,
) -> ShardReader:
    """Like `read_shard` over several shards with weights: each batch has samples of them in that
    proportion. `exhausted` says what happens when one is read to its end: `stop`, `drop` it and go
    on with the others, or `repeat` it until all were read once."""
    if not 0 <= rank < world:
        why = f"of {world} ranks the first is 0 and the last {world - 1}"
        raise InvalidInput(what=f"The rank {rank}", why=why)
    for name, number in (("prefetch", prefetch), ("threads", threads)):
        if number is not None and number < 1:
            raise InvalidInput(what=f"{name}={number}", why="it is at least 1")
    if batch_samples is None and batch_tokens is None:
        batch_samples = BATCH_SAMPLES
    plan = ReadingPlan(
        mixture=Mixture(tuple(float(weight) for _, weight in shards), exhausted),
        budget=BatchBudget(batch_samples, batch_tokens),
        rank=rank,
        world=world,
        seed=seed,
        shuffled=shuffle,
        batches_max=prefetch or _BATCHES_AHEAD,
        threads=threads or _THREADS,
    )
    names = check_columns(columns)
    if isinstance(data, str) and "://" in data:
        settings = load_settings(flags={"store_url": data})
    else:
        settings = load_settings(data)
    store, copies = open_store(settings), None
    if cache is not False and not (store.local and cache in (None, True)):
        own = settings.data / "cache" / "shards"
        directory = own if cache in (None, True) else Path(str(cache))
        copies = LocalCopies(directory, settings.room(ShardSettings).shard_cache_bytes_max)
    opened = [
        OpenShard(store, read_manifest(store, shard_id), names, copies) for shard_id, _ in shards
    ]
    return ShardReader(opened, plan, epoch)


#: Those with a running thread. One that still reads when the interpreter ends aborts the program.
_open_prefetches: WeakSet["Prefetch[Any]"] = WeakSet()


@atexit.register
def _close_all() -> None:
    for prefetch in list(_open_prefetches):
        prefetch.close()


class PrefetchClosed(Exception):
    """Nobody wants more items. The thread that makes them ends on it."""


class Prefetch(Generic[T]):
    """Iterate over what `make` yields, which a thread makes ahead; at most `items_max` wait. An
    item, an error or the end always wakes whoever waits. `close` ends the thread, and a loop that
    waits for an item then gets PrefetchClosed."""

    def __init__(self, make: Callable[[], Iterator[T]], items_max: int, name: str) -> None:
        self._make = make
        self._items_max = items_max
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        _open_prefetches.add(self)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._closed)
            if self._closed:
                raise PrefetchClosed
            if self._items:
                self._changed.notify_all()
                return self._items.popleft()
            if self._error is not None:
                raise self._error
            raise StopIteration

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
        self._thread.join()
        _open_prefetches.discard(self)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._make():
                self._put(item)
        except PrefetchClosed:
            pass
        except BaseException as raised:  # noqa: BLE001  # raised again in the loop
            error = raised
        with self._changed:
            self._error = error
            self._ended = True
            self._changed.notify_all()

    def _put(self, item: T) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._items_max or self._closed)
            if self._closed:
                raise PrefetchClosed
            self._items.append(item)
            self._changed.notify_all()
