"""Mixtures of shards by weight."""

from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.core.errors import InvalidInput
from penstock.shards.reader import ShardReader, read_mixture, read_shard
from penstock.shards.sources import Exhausted
from tests.support.shards.making import make_groups, make_shard
from tests.support.shards.reading import batches, flat, kept, sequence

SIZES = {"a": 40, "b": 20, "c": 7}


class Shards(NamedTuple):
    data: Path
    ids: dict[str, str]

    def mixture(self, weights: dict[str, float], exhausted: Exhausted, **how: Any) -> ShardReader:
        shards = [(self.ids[name], weight) for name, weight in weights.items()]
        given = {"seed": 3, "batch_samples": 12} | how
        return read_mixture(self.data, shards, exhausted=exhausted, **given)

    def alone(self, name: str, epoch: int = 0) -> list[str]:
        return sequence(read_shard(self.data, self.ids[name], seed=3, epoch=epoch))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    data = tmp_path_factory.mktemp("data")
    store = FileStore(data / "lake")
    made = {
        name: make_shard(store, make_groups(size, seed=seed, rollouts=(1, 2)), name=name)
        for seed, (name, size) in enumerate(SIZES.items())
    }
    return Shards(data, {name: one.id for name, one in made.items()})


def of_source(found: list[str], number: int) -> list[str]:
    return [one for one in found if one.startswith(f"s{number}-")]


WEIGHTS = {"a": 2.0, "b": 1.0, "c": 0.5}


def test_each_source_keeps_its_order_and_its_share(shards: Shards) -> None:
    found = sequence(shards.mixture(WEIGHTS, "stop"))
    ended = 0
    for number, name in enumerate(SIZES):
        own, whole = of_source(found, number), shards.alone(name)
        assert own == whole[: len(own)]
        ended += own == whole
    assert ended == 1  # with the first that is empty
    for step in range(0, len(found), 10):
        counts = [len(of_source(found[:step], number)) for number in range(3)]
        for count, weight in zip(counts, WEIGHTS.values(), strict=True):
            assert abs(count - step * weight / 3.5) <= 8  # a group has up to four samples


def test_drop_goes_on_without_it(shards: Shards) -> None:
    found = sequence(shards.mixture({"a": 1, "c": 9}, "drop"))
    assert of_source(found, 0) == shards.alone("a")
    assert of_source(found, 2) == shards.alone("c")
    assert found[-30:] == of_source(found, 0)[-30:]


def test_repeat_reads_the_small_again_until_the_large_ended(shards: Shards) -> None:
    found = sequence(shards.mixture({"a": 1, "c": 1}, "repeat"))
    assert of_source(found, 0) == shards.alone("a")
    own = of_source(found, 2)
    epochs = [*chain(*(shards.alone("c", epoch) for epoch in range(20)))]
    assert own == epochs[: len(own)]
    assert len(own) > len(shards.alone("c"))


@pytest.mark.parametrize("exhausted", ["stop", "drop", "repeat"])
def test_stopped_at_every_step_it_goes_on_exactly(shards: Shards, exhausted: Exhausted) -> None:
    whole = batches(shards.mixture(WEIGHTS, exhausted))
    for step in range(len(whole) + 1):
        first = shards.mixture(WEIGHTS, exhausted)
        seen = batches(first, step)
        later = shards.mixture(WEIGHTS, exhausted, prefetch=7, threads=1)
        later.load_state_dict(kept(first.state_dict()))
        assert seen + batches(later) == whole


@pytest.mark.parametrize("world", [2, 8])
def test_ranks_share_the_same_global_batches(shards: Shards, world: int) -> None:
    whole = batches(shards.mixture(WEIGHTS, "repeat", batch_samples=None, batch_tokens=300))
    ranks = [
        batches(
            shards.mixture(
                WEIGHTS, "repeat", batch_samples=None, batch_tokens=300, rank=rank, world=world
            )
        )
        for rank in range(world)
    ]
    for step, batch in enumerate(whole):
        parts = [one[step] for one in ranks]
        assert sorted(flat(parts)) == sorted(batch)
        for part in parts:  # a batch may hold a sample of the smallest shard twice
            rest = iter(batch)
            assert all(one in rest for one in part)


def test_a_mixture_that_cannot_be_meant(shards: Shards) -> None:
    for weight in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InvalidInput, match="weight"):
            shards.mixture({"a": weight}, "stop")
    with pytest.raises(InvalidInput, match="no source"):
        shards.mixture({}, "stop")
    with pytest.raises(InvalidInput, match="stop, drop, repeat"):
        shards.mixture(WEIGHTS, "wait")  # type: ignore[arg-type]
