import os
from pathlib import Path

import pytest

from tests.system.durability.test_kills import check


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_hundred_kills(tmp_path: Path, partitions: int) -> None:
    """Another seed each time; the failure names it."""
    seed = int.from_bytes(os.urandom(4))
    try:
        check(tmp_path / "data", partitions, 100, seed)
    except AssertionError as error:
        error.add_note(f"the seed was {seed}")
        raise
