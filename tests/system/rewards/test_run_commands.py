import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from tests.room.rewards.test_run_commands import asked
from tests.support.lakes import Event, HandLake, hand_lake
from tests.support.reward_runs import seen, thumbs, worked


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "killed", bucket_bytes_target=12_000) as killed:
        fill(killed)
        for patience in (0, 1, 3, 6):
            kill_after(tmp_path / "killed", files=patience)
        done = asked(tmp_path / "killed", "run")
        assert done["sessions"] < 40, "what was committed before a kill is not done again"
        with hand_lake(tmp_path / "calm") as calm:
            fill(calm)
            asked(tmp_path / "calm", "run")
            assert current_rewards(killed) == current_rewards(calm)
        collect(killed.lake, grace_s=0)
        assert verify(killed.lake).findings == []


def fill(lake: HandLake) -> None:
    for number in range(40):
        lake.send([*worked(f"s{number}"), seen(f"s{number}", 303), thumbs(f"s{number}", 310)])
    lake.writer().drain()


def current_rewards(lake: HandLake) -> list[Event]:
    return lake.rows(
        """select * exclude (computed_at, superseded_at) from rewards
        where superseded_at is null order by all"""
    )


def kill_after(data: Path, files: int) -> None:
    """Kill a run without mercy once so many more files of rewards are there."""
    there = data / "lake" / "rewards"
    before = len(list(there.rglob("*.parquet")))
    environment = {**os.environ, "PENSTOCK_BUCKET_BYTES_TARGET": "12000"}
    command = [sys.executable, "-m", "penstock", "rewards", "run", "--data", str(data)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while process.poll() is None and len(list(there.rglob("*.parquet"))) < before + files:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
