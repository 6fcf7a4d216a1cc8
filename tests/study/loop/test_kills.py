from pathlib import Path

from tests.system.loop.test_kills import kills_change_nothing


def test_killed_at_fifty_random_moments(tmp_path: Path) -> None:
    kills_change_nothing(tmp_path, 50)
