"""Shared by the tests that run trainers: a tiny model, a shard that it wrote, and exports of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.shards.manifest import Manifest, StoredShard
from penstock_jobs.shards.export import export_shard
from penstock_jobs.shards.recipe import load_recipe
from tests.study.trainers.making import make_model, make_tokenizer, sampled, save_model
from tests.support.engine_lake import built
from tests.support.export_rows import Row, stored
from tests.support.lakes import hand_lake
from tests.support.shards.hinted import faulty, write_recipe
from tests.support.shards.making import stored_in


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with its tokenizer, as `from_pretrained` takes it. Do not write into it."""
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def tiny_model() -> Any:
    """The same, loaded: of your own, to be trained."""
    return make_model()


@pytest.fixture
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    """What the tiny model wrote, with its log-probabilities. Copy a row before changing it."""
    return sampled(make_model())


@pytest.fixture
def shard(tmp_path: Path) -> Callable[[list[Row]], Manifest]:
    """Makes a shard of rows in the data directory `tmp_path`, several parts long."""
    return lambda rows: stored(FileStore(tmp_path / "lake"), rows)


@pytest.fixture(scope="session")
def hint_shard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StoredShard]:
    """A data directory of sessions in which much went wrong, and a shard of what was said of it."""
    folder = tmp_path_factory.mktemp("hints")
    with hand_lake(folder / "data") as lake:
        for number in range(8):
            lake.store(faulty(f"s{number}").events)
        return folder / "data", built(lake, load_recipe(write_recipe(folder / "recipes"))).stored


@pytest.fixture
def exported(
    tmp_path: Path, shard: Callable[[list[Row]], Manifest]
) -> Callable[[list[Row], str], Path]:
    """The folder of an export of rows for a target."""

    def to(rows: list[Row], target: str) -> Path:
        folder = tmp_path / f"export-{target}"
        export_shard(stored_in(FileStore(tmp_path / "lake"), shard(rows)), target, folder)
        return folder

    return to
