import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.backends.execution.calls import ProcessExecutor
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from penstock.shards.registered_shards import list_shards
from tests.support.engine_lake import built, files_of, fill
from tests.support.lakes import HandLake, hand_lake
from tests.support.repository import ROOT

#: A program of its own begins so.
IN_A_PROCESS = """
import sys
from pathlib import Path
from tests.support.lakes import hand_lake
from penstock_jobs.shards import build
from penstock_jobs.shards.recipe import load_recipe
from tests.support.engine_lake import built, fill
build.SLICE_EVENTS = 12
"""


def test_the_same_bytes_twice_and_on_other_executors(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    first = built(lake, recipe())
    files = files_of(lake)
    assert built(lake, recipe()).manifest == first.manifest
    assert not built(lake, recipe()).new
    with ProcessExecutor(workers=2) as executor:
        assert built(lake, recipe(), executor).manifest.id == first.manifest.id
    assert files_of(lake) == files
    assert len(list_shards(lake.lake.database, "default")) == 1


def test_the_same_bytes_in_another_lake_time_zone_and_locale(
    tmp_path: Path, lake: HandLake, recipe: Callable[..., Any]
) -> None:
    first = built(lake, recipe())
    script = IN_A_PROCESS + (
        "with hand_lake(Path(sys.argv[1])) as lake:\n"
        "    fill(lake); print(built(lake, load_recipe(Path(sys.argv[2]))).manifest.id)"
    )
    arguments = [str(tmp_path / "other"), str(tmp_path / "recipes" / "engine.toml")]
    environment = {**os.environ, "TZ": "Pacific/Chatham", "LC_ALL": "tr_TR.UTF-8"}
    environment |= {"PYTHONHASHSEED": "99"}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == first.manifest.id, done.stderr


def test_a_build_that_is_killed_leaves_nothing_and_the_next_is_the_same(
    tmp_path: Path, lake: HandLake, recipe: Callable[..., Any]
) -> None:
    expected = built(lake, recipe()).manifest.id
    script = IN_A_PROCESS + (
        "with hand_lake(Path(sys.argv[1])) as lake:\n"
        "    built(lake, load_recipe(Path(sys.argv[2])))"
    )
    with hand_lake(tmp_path / "killed") as killed:
        fill(killed)
        for files in (0, 2, 5):
            command = [sys.executable, "-c", script, str(tmp_path / "killed")]
            command.append(str(tmp_path / "recipes" / "engine.toml"))
            with subprocess.Popen(command, cwd=ROOT) as process:
                while process.poll() is None and len(files_of(killed)) < files:
                    time.sleep(0.002)
                process.kill()
            if killed.rows("select * from shards"):
                break  # it was quicker than we
            collect(killed.lake, grace_s=0)
            assert files_of(killed) == set()
        assert built(killed, recipe()).manifest.id == expected
        collect(killed.lake, grace_s=0)
        assert verify(killed.lake).findings == []
