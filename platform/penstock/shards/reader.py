"""Reading shards for training: the same samples in the same order on every machine.

The shard, the seed and the epoch decide which samples come, in which order and in which global
batches. The number of ranks, of threads and of batches made ahead does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from penstock.errors import InvalidInput
from penstock.settings import Settings, load_settings
from penstock.shards.balance import BatchBudget
from penstock.shards.batches import Batch, RankShare, check_columns, make_batch
from penstock.shards.errors import PositionRefused
from penstock.shards.files import LocalCopies
from penstock.shards.manifest import read_manifest
from penstock.shards.order import Order
from penstock.shards.prefetch import Prefetch, PrefetchClosed
from penstock.shards.settings import ShardSettings
from penstock.shards.sources import (
    Exhausted,
    Mixture,
    OpenShard,
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


@dataclass(frozen=True)
class ReadingPlan:
    """What a reader gives out."""

    mixture: Mixture
    budget: BatchBudget
    share: RankShare
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
            self._positions = [_next_round(one) for one in self._positions]
        except PrefetchClosed:
            what = "The loop over a reader"
            why = "the reader was closed, or another loop over it began"
            raise InvalidInput(what=what, why=why) from None
        finally:
            batches.close()

    @property
    def epoch(self) -> int:
        """The epoch of the first source."""
        return self._positions[0].epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the reader stands: after the batch that it gave out last, whatever was made
        ahead. It can be kept as JSON."""
        return self._state(self._positions)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, with any number of ranks, and batches of any size. Raises
        PositionRefused for a state of other shards, another seed or another mixture."""
        positions = self._checked(state)
        self.close()
        self._positions = positions

    def close(self) -> None:
        """End the threads. A later loop goes on where the last one was left."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _make(self) -> Iterator[Batch]:
        plan = self._plan
        with ExitStack() as closing:
            for shard in self._shards:
                closing.callback(shard.close)
            pool = closing.enter_context(ThreadPoolExecutor(plan.threads, "penstock-decode"))
            try:
                cursors = [
                    ShardCursor(shard, partial(self._order, shard), plan.budget, position, pool)
                    for shard, position in zip(self._shards, self._positions, strict=True)
                ]
                for groups in global_batches(cursors, plan.mixture, plan.budget.limit):
                    state = self._state([one.position for one in cursors])
                    yield make_batch(groups, plan.budget, plan.share, state)
                    for one in cursors:
                        one.look_ahead()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _order(self, shard: OpenShard, epoch: int) -> Order:
        return Order(shard.id, shard.chunks, self._plan.seed, epoch, self._plan.shuffled)

    def _state(self, positions: Sequence[ShardPosition]) -> dict[str, Any]:
        plan = self._plan
        return {
            "format": _STATE_FORMAT,
            "seed": plan.seed,
            "shuffled": plan.shuffled,
            "exhausted": plan.mixture.exhausted,
            "batch_samples": plan.budget.samples,
            "batch_tokens": plan.budget.tokens,
            "world": plan.share.world,
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
            for name in ("seed", "shuffled", "exhausted"):
                _refuse_other(name, state[name], own[name])
            theirs, ours = state["sources"], own["sources"]
            _refuse_other("number of shards", len(theirs), len(ours))
            for one, other in zip(theirs, ours, strict=True):
                _refuse_other("shard", one["shard"], other["shard"])
                _refuse_other("weight", one["weight"], other["weight"])
            positions = _positions_in(state)
        except (KeyError, TypeError) as error:
            raise PositionRefused(why=f"it is no state of a reader: {error!r}") from error
        for shard, position in zip(self._shards, positions, strict=True):
            rows = shard.manifest.rows
            if not 0 <= position.samples_consumed <= rows or position.epoch < 0:
                why = f"sample {position.samples_consumed} of epoch {position.epoch}, of {rows}"
                raise PositionRefused(why=f"there is no such place: {why}")
        return positions


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
    mixture = Mixture(tuple(float(weight) for _, weight in shards), exhausted)
    if batch_samples is None and batch_tokens is None:
        batch_samples = BATCH_SAMPLES
    settings = _settings_of(data)
    plan = ReadingPlan(
        mixture=mixture,
        budget=BatchBudget(batch_samples, batch_tokens),
        share=RankShare(rank, world),
        seed=seed,
        shuffled=shuffle,
        batches_max=_at_least_one("prefetch", prefetch, _BATCHES_AHEAD),
        threads=_at_least_one("threads", threads, _THREADS),
    )
    names = check_columns(columns)
    store = open_store(settings)
    copies = _copies(settings, cache, local=store.local)
    opened = [
        OpenShard(store, read_manifest(store, shard_id), names, copies) for shard_id, _ in shards
    ]
    return ShardReader(opened, plan, epoch)


def _at_least_one(name: str, given: int | None, default: int) -> int:
    if given is not None and given < 1:
        raise InvalidInput(what=f"{name}={given}", why="it is at least 1")
    return default if given is None else given


def _settings_of(data: str | Path) -> Settings:
    if isinstance(data, str) and "://" in data:
        return load_settings(flags={"store_url": data})
    return load_settings(data)


def _copies(
    settings: Settings, cache: bool | str | Path | None, *, local: bool
) -> LocalCopies | None:
    if cache is False or (local and cache in (None, True)):
        return None
    directory = settings.data / "cache" / "shards" if cache in (None, True) else Path(str(cache))
    return LocalCopies(directory, settings.room(ShardSettings).shard_cache_bytes_max)


def _positions_in(state: Mapping[str, Any]) -> list[ShardPosition]:
    names = ("epoch", "samples_consumed", "drawn", "finished")
    return [ShardPosition(**{name: int(one[name]) for name in names}) for one in state["sources"]]


def _next_round(position: ShardPosition) -> ShardPosition:
    """Where a source goes on after the end of a loop: at the start of an epoch of its own."""
    return ShardPosition(position.epoch + 1)


def _refuse_other(what: str, found: object, own: object) -> None:
    if found != own:
        raise PositionRefused(why=f"its {what} is {found}, and the reader's {own}")
