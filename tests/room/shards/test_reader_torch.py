"""The dataset of PyTorch, with torch where it is installed; how workers share batches, without."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.core.errors import InvalidInput
from penstock.shards.reader import read_shard
from tests.support.shards.making import make_groups, make_shard
from tests.support.shards.reading import batches

MODULE = "penstock.shards.torch"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Which worker torch says this is, where a stand-in takes the place of torch."""
    told = SimpleNamespace(info=None)
    torch, utils, data = (ModuleType(name) for name in ("torch", "torch.utils", "torch.utils.data"))
    torch.from_numpy = lambda values: values  # type: ignore[attr-defined]
    data.IterableDataset = object  # type: ignore[attr-defined]
    data.get_worker_info = lambda: told.info  # type: ignore[attr-defined]
    for module in (torch, utils, data):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield told
    sys.modules.pop(MODULE, None)


@pytest.fixture
def opening(tmp_path: Path) -> Any:
    manifest = make_shard(FileStore(tmp_path / "lake"), make_groups(60))
    return partial(read_shard, tmp_path, manifest.id, seed=5, batch_samples=10)


def of_workers(dataset: Any, worker: SimpleNamespace, count: int) -> list[dict[str, Any]]:
    """What a DataLoader with so many workers gives out: a batch of each by turns."""
    found = []
    for number in range(count):
        worker.info = SimpleNamespace(id=number, num_workers=count)
        found.append(list(dataset))
    worker.info = None
    return [one[step] for step in range(len(found[0])) for one in found if step < len(one)]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_any_number_of_workers_gives_the_same_sequence(
    opening: Any, worker: SimpleNamespace, count: int
) -> None:
    from penstock.shards.torch import ShardDataset

    found = of_workers(ShardDataset(opening), worker, count)
    assert [batch["sample_id"] for batch in found] == batches(opening())
    first = found[0]
    assert first["input_ids"].flags.writeable
    assert first["input_ids.offsets"][-1] == len(first["input_ids"]) == first["n_tokens"].sum()


def test_workers_may_change_at_a_stop(opening: Any, worker: SimpleNamespace) -> None:
    from penstock.shards.torch import ShardDataset

    whole = batches(opening())
    seen: list[list[str]] = []
    dataset = ShardDataset(opening)
    for count, steps in ((3, 4), (1, 3), (8, 5), (2, None)):
        found = of_workers(dataset, worker, count)[:steps]
        seen += [batch["sample_id"] for batch in found]
        dataset = ShardDataset(opening)
        dataset.load_state_dict(found[-1]["state"])
    assert seen == whole


def test_without_torch_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(InvalidInput, match="pip install torch"):
        __import__(MODULE)


def test_a_data_loader_gives_the_same_sequence(opening: Any) -> None:
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    from penstock.shards.torch import ShardDataset

    for count in (0, 2):
        loader = data.DataLoader(ShardDataset(opening), batch_size=None, num_workers=count)
        assert [batch["sample_id"] for batch in loader] == batches(opening())
