from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_jobs.shards import build
from penstock_jobs.shards.recipe import load_recipe
from tests.support.engine_lake import QUERY, RECIPE, fill
from tests.support.lakes import HandLake, hand_lake


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Any]:
    """Writes a recipe with something put in the place of something else."""

    def written(*replaced: tuple[str, str], query: str = QUERY) -> Any:
        text = RECIPE
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        folder = tmp_path / "recipes"
        folder.mkdir(exist_ok=True)
        (folder / "all.sql").write_text(query)
        (folder / "engine.toml").write_text(text)
        return load_recipe(folder / "engine.toml")

    return written


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HandLake]:
    """Slices of a few sessions, so that there are several."""
    monkeypatch.setattr(build, "SLICE_EVENTS", 12)
    with hand_lake(tmp_path / "data") as lake:
        fill(lake)
        yield lake
