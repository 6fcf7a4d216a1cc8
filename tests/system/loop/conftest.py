from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loop_world import World, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path, canary_look_seconds=0.05) as world:
        yield world
