from pathlib import Path

import pytest

from tests.room.rewards.test_chain_files import assert_piece_by_piece_is_as_all_at_once


@pytest.mark.parametrize("seed", range(12))
def test_larger_families_piece_by_piece(seed: int, tmp_path: Path) -> None:
    bucket_bytes = (8, 4_000, 100_000)[seed % 3]
    assert_piece_by_piece_is_as_all_at_once(tmp_path, seed, 7, 6, bucket_bytes)
