import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock_jobs.shards import build
from penstock_jobs.shards.build import ShardBuild
from penstock_jobs.shards.recipe import Recipe
from tests.support.engine_lake import built, engine_recipe, fill
from tests.support.lakes import HandLake, hand_lake


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Recipe]:
    """Writes a recipe with something put in the place of something else."""
    return partial(engine_recipe, tmp_path / "recipes")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory that each `lake` is a copy of."""
    data = tmp_path_factory.mktemp("filled") / "data"
    with hand_lake(data) as lake:
        fill(lake)
    return data


@pytest.fixture
def lake(tmp_path: Path, filled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HandLake]:
    """Slices of a few sessions, so that there are several."""
    monkeypatch.setattr(build, "SLICE_EVENTS", 12)
    shutil.copytree(filled, tmp_path / "data")
    with hand_lake(tmp_path / "data") as lake:
        yield lake


@pytest.fixture
def shard(lake: HandLake, recipe: Callable[..., Recipe]) -> ShardBuild:
    return built(lake, recipe())
