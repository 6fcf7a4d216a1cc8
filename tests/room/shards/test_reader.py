"""The loader's matrix: whatever happens to readers, each asserts the exact sequence of samples."""

import gc
import subprocess
import sys
import threading
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.core.errors import InvalidInput
from penstock.shards.manifest import Manifest, part_name
from penstock.shards.reader import ShardReader, read_shard
from penstock.shards.shard import PositionRefused, ShardDamaged
from penstock.shards.writer import PartLimits
from tests.support.shards.making import (
    make_groups,
    make_routes,
    make_shard,
    own_folder,
    table_of,
    with_routes,
)
from tests.support.shards.reading import batches, flat, kept, sequence

ROWS = make_groups(60, rollouts=(1, 2, 4, 7))
SAMPLES = len(ROWS)
GROUP_OF = {row["sample_id"]: row["group_id"] for row in ROWS}
TOKENS_OF = {row["sample_id"]: row["n_tokens"] for row in ROWS}
SIZES: list[dict[str, int]] = [{"batch_samples": 24}, {"batch_tokens": 900}]


class Made(NamedTuple):
    data: Path
    manifest: Manifest

    def reader(self, **how: Any) -> ShardReader:
        return read_shard(self.data, self.manifest.id, **({"seed": 7, "batch_samples": 24} | how))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    data = tmp_path_factory.mktemp("data")
    return Made(data, make_shard(FileStore(data / "lake"), ROWS))


@pytest.fixture(scope="module")
def expected(made: Made) -> list[str]:
    """The order of the first epoch."""
    return sequence(made.reader())


def test_an_epoch_has_each_sample_once_in_an_order_of_its_own(
    made: Made, expected: list[str]
) -> None:
    written = [row["sample_id"] for row in ROWS]
    assert sorted(expected) == sorted(written)
    assert expected != written
    assert sequence(made.reader(shuffle=False)) == written
    others = [sequence(made.reader(**how)) for how in ({"epoch": 1}, {"seed": 8})]
    assert all(sorted(one) == sorted(written) for one in others)
    assert len({tuple(one) for one in (expected, *others)}) == 3


@pytest.mark.parametrize("size", SIZES)
def test_a_group_is_in_one_batch_and_a_batch_within_its_budget(
    made: Made, expected: list[str], size: dict[str, int]
) -> None:
    found = batches(made.reader(**only(size)))
    assert flat(found) == expected
    for batch in found:
        groups = {GROUP_OF[one] for one in batch}
        taken = len(batch) if "batch_samples" in size else sum(TOKENS_OF[one] for one in batch)
        assert taken <= next(iter(size.values())) or len(groups) == 1
    runs = [name for name, _ in groupby(GROUP_OF[one] for one in flat(found))]
    assert len(runs) == len(set(runs))
    assert len(flat(found)) == len(set(flat(found)))
    assert len({GROUP_OF[one] for batch in found for one in batch}) == sum(
        len({GROUP_OF[one] for one in batch}) for batch in found
    )


def only(size: dict[str, int]) -> dict[str, int | None]:
    return {"batch_samples": None, "batch_tokens": None} | size


@pytest.mark.parametrize("how", [{"prefetch": 1}, {"prefetch": 50}, {"threads": 1}, {"threads": 5}])
def test_threads_and_batches_made_ahead_change_nothing(
    made: Made, expected: list[str], how: dict[str, int]
) -> None:
    assert sequence(made.reader(**how)) == expected


# Ranks


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_any_number_of_ranks_gets_the_same_global_batches(
    made: Made, world: int, size: dict[str, int]
) -> None:
    whole = batches(made.reader(**only(size)))
    ranks = [batches(made.reader(**only(size), rank=rank, world=world)) for rank in range(world)]
    assert {len(one) for one in ranks} == {len(whole)}
    for step, batch in enumerate(whole):
        parts = [one[step] for one in ranks]
        assert sorted(flat(parts)) == sorted(batch)
        for part in parts:
            assert part == [one for one in batch if one in part]


def test_a_rank_without_samples_gets_padding_that_is_not_trained(made: Made) -> None:
    padded = 0
    for rank in range(8):
        with made.reader(rank=rank, world=8, batch_samples=2) as reader:
            for batch in reader:
                assert len(batch) >= 1
                if batch.padding:
                    padded += 1
                    assert len(batch) == 1
                    assert batch["loss_weight"].tolist() == [0.0]
                    assert not batch["loss_mask"].values.any()
                    assert len(batch["loss_mask"][0]) == len(batch["input_ids"][0]) > 0
    assert padded


# Stopping and going on


@pytest.mark.parametrize("size", SIZES)
def test_stopped_at_every_step_it_goes_on_exactly(
    made: Made, expected: list[str], size: dict[str, int]
) -> None:
    whole = batches(made.reader(**only(size)))
    for step in range(len(whole) + 1):
        first = made.reader(**only(size))
        seen = batches(first, step)
        later = made.reader(**only(size))
        later.load_state_dict(kept(first.state_dict()))
        assert seen + batches(later) == whole


def test_it_goes_on_from_any_sample(made: Made, expected: list[str]) -> None:
    """Also from one in the middle of a group, of which the rest comes."""
    state = made.reader().state_dict()
    for sample in range(0, SAMPLES + 1, 13):
        reader = made.reader()
        state["sources"][0]["samples_consumed"] = sample
        reader.load_state_dict(state)
        assert sequence(reader) == expected[sample:]


def test_the_number_of_ranks_may_change_at_each_stop(made: Made, expected: list[str]) -> None:
    state = made.reader().state_dict()
    seen = 0
    for world in (1, 2, 8, 3):
        parts, states = [], []
        for rank in range(world):
            reader = made.reader(rank=rank, world=world, prefetch=world)
            reader.load_state_dict(kept(state))
            parts.append(flat(batches(reader, 2)))
            states.append(reader.state_dict())
        assert all(one == states[0] for one in states)
        state = states[0]
        consumed = state["sources"][0]["samples_consumed"]
        assert sorted(flat(parts)) == sorted(expected[seen:consumed])
        seen = consumed
    reader = made.reader()
    reader.load_state_dict(state)
    assert sequence(reader) == expected[seen:]


def test_the_end_of_an_epoch_and_the_next(made: Made, expected: list[str]) -> None:
    second = sequence(made.reader(epoch=1))
    reader = made.reader()
    assert sequence(reader) == expected
    assert (reader.epoch, sequence(reader)) == (1, second)

    reader = made.reader()
    for batch in reader:
        last = batch.state
    before_end, after_end = made.reader(), made.reader()
    before_end.load_state_dict(kept(last))  # the loop has not ended yet: it ends at once
    assert [sequence(before_end), sequence(before_end)] == [[], second]
    after_end.load_state_dict(kept(reader.state_dict()))
    assert sequence(after_end) == second


# What is refused


@pytest.mark.parametrize(
    ("change", "source", "why"),
    [
        ({"format": 2}, {}, "the format 2"),
        ({"seed": 8}, {}, "its seed is 8"),
        ({"shuffled": False}, {}, "its shuffled is False"),
        ({"exhausted": "drop"}, {}, "its exhausted is drop"),
        ({"sources": []}, {}, "its number of shards is 0"),
        ({"sources": None}, {}, "not a state of a reader"),
        ({}, {"shard": "sha256:00"}, "its shard is sha256:00"),
        ({}, {"samples_consumed": SAMPLES + 1}, "the position does not exist"),
        ({}, {"samples_consumed": -1}, "the position does not exist"),
        ({}, {"epoch": None}, "not a state of a reader"),
    ],
)
def test_a_state_of_something_else_is_refused(
    made: Made, change: dict[str, Any], source: dict[str, Any], why: str
) -> None:
    reader = made.reader()
    state = reader.state_dict()
    state["sources"][0] |= source
    with pytest.raises(PositionRefused, match=why):
        reader.load_state_dict(state | change)
    with pytest.raises(PositionRefused, match="resume from this state"):
        reader.load_state_dict({})


def test_what_cannot_be_read_is_refused(made: Made) -> None:
    for how in (
        *({"rank": 2, "world": 2}, {"rank": -1}, {"batch_samples": 0}, {"prefetch": 0}),
        *({"threads": 0}, {"batch_samples": 3, "batch_tokens": 3}),
        *({"columns": ["input_id"]}, {"columns": ["routed_experts"]}),
    ):
        with pytest.raises(InvalidInput):
            made.reader(**how)
    with pytest.raises(TypeError, match="no option 'batch'"):
        made.reader(batch=3)


# Columns


def test_every_column_comes_back_as_it_was(made: Made) -> None:
    names = [name for name in ROWS[0] if name != "created_at"]
    by_id = {row["sample_id"]: row for row in table_of(ROWS).to_pylist()}
    with made.reader(columns=names) as reader:
        for batch in reader:
            for number, sample in enumerate(batch["sample_id"]):
                row = by_id[sample]
                assert batch["input_ids"][number].tolist() == row["input_ids"]
                assert batch["rollout_logprobs"][number].tolist() == row["rollout_logprobs"]
                starts = batch["turn_spans.start"][number].tolist()
                assert starts == [span["start"] for span in row["turn_spans"]]
                assert batch["reward_components.name"][number].tolist() == ["persistence"]
                assert batch["advantage"][number] == row["advantage"]
                assert batch["messages"][number] == row["messages"]


def test_what_is_missing_is_told_apart(tmp_path: Path) -> None:
    nothing = {"rollout_logprobs": None, "advantage": None, "min_policy_version": None}
    row = ROWS[0] | nothing
    manifest = make_shard(FileStore(tmp_path / "lake"), [row])
    names = [*nothing, "task_id", "sample_id"]
    [batch] = read_shard(tmp_path, manifest.id, columns=names)
    assert len(batch["rollout_logprobs"][0]) == 0
    assert np.isnan(batch["advantage"][0])
    assert batch["min_policy_version"].tolist() == [-1]
    assert batch["task_id"].tolist() == [None]


def test_flat_values_are_views_where_rows_lie_beside_each_other(made: Made) -> None:
    with made.reader(shuffle=False, batch_samples=4) as reader:
        batch = next(iter(reader))
        column = batch["input_ids"]
        assert not column.values.flags.owndata
        assert np.shares_memory(column.values, column[0])
        assert np.shares_memory(column.values, column[len(batch) - 1])
    for how in ({}, {"shuffle": False}):
        with made.reader(**how) as reader:
            for batch in reader:
                for name in ("input_ids", "loss_mask", "rollout_logprobs"):
                    column = batch[name]
                    rows = [column[row] for row in range(len(batch))]
                    assert np.concatenate(rows).tolist() == column.values.tolist()
                    assert np.diff(column.offsets).tolist() == [len(row) for row in rows]
                    assert len(column) == len(batch)


def test_routed_experts_come_when_they_are_asked_for(tmp_path: Path) -> None:
    rows = with_routes(table_of(ROWS))
    routes = make_routes(rows)
    limits = PartLimits(60_000, 60, 3000)
    manifest = make_shard(FileStore(tmp_path / "lake"), rows, routes=routes, limits=limits)
    by_id = {row["sample_id"]: row["routed_experts"] for row in routes.to_pylist()}
    names = ["sample_id", "routed_experts", "layers"]
    seen = 0
    with read_shard(tmp_path, manifest.id, columns=names) as reader:
        for batch in reader:
            for number, sample in enumerate(batch["sample_id"]):
                assert batch["routed_experts"][number].tobytes() == by_id[sample]
                seen += 1
    assert seen == SAMPLES


def test_groups_larger_than_row_groups_are_read_whole(tmp_path: Path, expected: list[str]) -> None:
    manifest = make_shard(FileStore(tmp_path / "lake"), ROWS, limits=PartLimits(60_000, 60, 1500))
    assert any(one.continued for one in manifest.files)
    found = batches(read_shard(tmp_path, manifest.id, seed=7, batch_samples=5))
    assert sorted(flat(found)) == sorted(expected)
    assert len({GROUP_OF[one] for one in expected}) == sum(
        len({GROUP_OF[one] for one in batch}) for batch in found
    )


# Damage, and threads that end


@pytest.fixture
def own(tmp_path: Path) -> Made:
    return Made(tmp_path, make_shard(FileStore(tmp_path / "lake"), ROWS))


def file_of(made: Made, number: int) -> Path:
    name = f"{own_folder(made.manifest.id)}/{part_name(number)}"
    return made.data / "lake" / name


def no_threads() -> bool:
    return not [one for one in threading.enumerate() if one.name.startswith("penstock")]


@pytest.mark.parametrize("damage", ["missing", "truncated", "changed", "replaced"])
def test_damage_is_raised_where_the_batch_would_come(own: Made, damage: str) -> None:
    path = file_of(own, 1)
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[:-7])
    elif damage == "replaced":
        path.write_bytes(b"x" * len(content))
    else:
        for place in range(100, len(content) // 2, 50):
            content[place] ^= 255
        path.write_bytes(content)
    reader = own.reader()
    with pytest.raises(ShardDamaged, match=r"part-00001.parquet"):
        list(reader)
    assert no_threads()
    with pytest.raises(ShardDamaged):
        list(reader)


def test_threads_end_with_the_reader(made: Made) -> None:
    for leave in ("close", "break", "forget"):
        reader = made.reader(prefetch=1)
        loop = iter(reader)
        next(loop)
        assert not no_threads()
        if leave == "close":
            reader.close()
        elif leave == "break":
            loop.close()  # type: ignore[attr-defined]
        del loop, reader
        gc.collect()
        assert no_threads()


def test_a_second_loop_ends_the_first(made: Made) -> None:
    reader = made.reader()
    first = iter(reader)
    next(first)
    second = iter(reader)
    next(second)
    with pytest.raises(InvalidInput, match="another loop"):
        next(first)
    assert len(list(second)) > 0
    assert no_threads()


def test_a_program_that_ends_in_a_loop_ends(made: Made) -> None:
    program = (
        "import sys; from penstock.shards.reader import read_shard\n"
        "loop = iter(read_shard(*sys.argv[1:], batch_samples=24)); next(loop)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(made.data), made.manifest.id],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
