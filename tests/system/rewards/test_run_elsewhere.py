"""The same run where workers, files and later states of files are somewhere else."""

import os
import shutil
from pathlib import Path

import pytest

from penstock.backends.execution.calls import ProcessExecutor
from penstock.lake.upkeep.verification import verify
from penstock_jobs.rewards.history.session_commits import take_commits
from penstock_jobs.rewards.runs import RunRequest, run
from tests.room.rewards.test_history import START_S, History
from tests.support.lakes import START_US, Event, HandLake, hand_lake
from tests.support.reward_runs import (
    CURRENT,
    DAY_US,
    DEFINITION,
    SECOND,
    TEXT,
    run_at,
    seen,
    thumbs,
    worked,
)
from tests.support.servers.s3 import S3Server

ROWS = f"select * exclude (computed_at) from ({CURRENT}) order by all"


def fill(lake: HandLake) -> None:
    """Three batches of sessions, in as many segments."""
    for batch in range(3):
        for number in range(4):
            name = f"s{batch}-{number}"
            lake.send([*worked(name), seen(name, 303), thumbs(name, 310)])
        lake.writer().drain()


def rows_of(lake: HandLake) -> list[Event]:
    return lake.rows(ROWS)


@pytest.fixture
def expected(tmp_path: Path) -> list[Event]:
    with hand_lake(tmp_path / "expected") as lake:
        fill(lake)
        run_at(lake, 86_400)
        return rows_of(lake)


def test_in_other_processes(tmp_path: Path, expected: list[Event]) -> None:
    with hand_lake(tmp_path / "lake", bucket_bytes_target=16_000) as lake:
        fill(lake)
        with ProcessExecutor(workers=2) as executor:
            report = run(lake.lake, executor, RunRequest(DEFINITION), now_us=START_US + DAY_US)
        assert report.buckets > 2
        assert rows_of(lake) == expected


def test_with_files_in_s3(tmp_path: Path, s3: S3Server, expected: list[Event]) -> None:
    url = s3.store_url(s3.new_prefix())
    with hand_lake(tmp_path / "lake", store_url=url, bucket_bytes_target=16_000) as lake:
        fill(lake)
        run_at(lake, 86_400)
        assert rows_of(lake) == expected
        lake.store([thumbs("s0-0", 400, "down")])
        assert run_at(lake, 86_500).sessions == 1
        assert rows_of(lake) != expected
        assert verify(lake.lake).findings == []


@pytest.mark.skipif(
    shutil.which("git") is None and os.environ.get("CI") != "true",
    reason="the program git is not installed",
)
def test_with_the_commits_of_a_repository(tmp_path: Path) -> None:
    """The user commits the edit, and takes it back an hour later. Without the repository nobody
    has looked."""
    history = History(tmp_path / "repository")
    start = START_US // SECOND - START_S
    history.commit(start, {"src/app.py": "a = 1\n"})
    history.commit(start + 301, {"src/app.py": TEXT})
    history.commit(start + 3600, {"src/app.py": "a = 1\n"})
    history.write()
    with hand_lake(tmp_path / "lake") as lake:
        for name in ("shop", "blog"):
            lake.store([one | {"project": name} for one in worked(name)])
        run_at(lake, 86_400)
        now_us, named = START_US + DAY_US, (history.repository(), "shop")
        [taken] = take_commits(lake.lake, now_us, DEFINITION.horizons_s(), named).values()
        assert (taken.sessions, taken.commits > 0) == (1, True)
        assert run_at(lake, 86_500).sessions == 1
        found = lake.rows(
            f"""select session_id, value, reason from ({CURRENT})
            where name = 'edit_persistence' and target_kind = 'edit' and horizon_s = 300
            order by all"""
        )
        assert [tuple(row.values()) for row in found] == [
            ("blog", None, "unobserved"),
            ("shop", 1.0, None),
        ]
        [again] = take_commits(lake.lake, now_us, DEFINITION.horizons_s(), named).values()
        assert again.commits == 0
