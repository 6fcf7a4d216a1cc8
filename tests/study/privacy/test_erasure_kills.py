import os
from pathlib import Path

from tests.system.privacy.test_erasure_kills import check


def test_many_erasures_that_are_killed(tmp_path: Path) -> None:
    """Another seed each time; the failure names it."""
    for at in range(10):
        (tmp_path / str(at)).mkdir()
        seed = int.from_bytes(os.urandom(4))
        try:
            check(tmp_path / str(at) / "data", kills=8, seed=seed)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
