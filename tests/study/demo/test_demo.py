import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from penstock_jobs.simulator.demo.story import ACTS
from tests.support.suite_factory import need_isolation


def test_the_whole_story_twice(tmp_path: Path) -> None:
    need_isolation()
    first, second = (tell(tmp_path / name) for name in ("one", "two"))
    assert [one["outcome"] for one in first["chapters"]] == [act.meant for act in ACTS]
    before, after = first["chapters"][0], first["ending"]
    for by in ("measured", "known"):
        assert after[by]["kept"] > before[by]["kept"] + 0.08
        assert after[by]["dissatisfied"] < before[by]["dissatisfied"] - 0.15
    assert without_times(first) == without_times(second)


def tell(directory: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock", "demo", "--json", "--data", str(directory)]
    done = subprocess.run(command, capture_output=True, check=True)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def without_times(told: dict[str, Any]) -> dict[str, Any]:
    timed = ("stages", "why")
    chapters = [
        {name: value for name, value in one.items() if name not in timed}
        for one in told["chapters"]
    ]
    return {"chapters": chapters, "ending": told["ending"]}
