from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lakes import HandLake, hand_lake

__all__ = ["lake"]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """An empty lake of the test's own, in `tmp_path`."""
    with hand_lake(tmp_path) as lake:
        yield lake
