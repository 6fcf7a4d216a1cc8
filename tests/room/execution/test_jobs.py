"""A job over buckets: the same anywhere, and each result kept once."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.errors import InvalidInput
from penstock.execution import Executor
from penstock.execution.calls import InlineExecutor
from penstock.ingest.tables import rejected
from penstock.lake.bucket_jobs import RESULT_BYTES_MAX, BucketJob, read_results, run_job
from penstock.lake.buckets import Bucket
from penstock.lake.catalog import current
from penstock.lake.errors import JobResultUnfit
from penstock.lake.merges import merge
from penstock.lake.tables import job as job_table
from penstock.lake.tables import job_result
from tests.support.execution import bucket_functions as functions
from tests.support.lakes import HandLake, hand_lake, make_event
from tests.support.repository import ROOT

COUNT = BucketJob(functions.count_sessions, version="1")
INLINE = InlineExecutor()
EXPECTED = {f"{tenant}/s{n}": 6 for tenant in "ab" for n in range(12)}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """24 sessions in 4 segments, and settings that cut them into several buckets."""
    with hand_lake(tmp_path / "data", bucket_bytes_target=4000) as lake:
        for tenant in "ab":
            for half in range(2):
                events = [make_event(f"s{n}", 3 * half + k) for n in range(12) for k in range(3)]
                lake.store(events, tenant)
        yield lake


def found_by(lake: HandLake, id_: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in read_results(lake.lake, id_):
        assert not found.keys() & result.keys()
        found |= result
    return found


def test_a_job_finds_the_same_on_every_executor(lake: HandLake, executor: Executor) -> None:
    report = run_job(lake.lake, executor, COUNT)
    assert found_by(lake, report.id) == EXPECTED
    assert (report.events, report.committed, report.there) == (144, report.buckets, 0)
    assert report.buckets > 2


def test_a_finished_job_is_not_done_again_unless_asked(lake: HandLake) -> None:
    first = run_job(lake.lake, INLINE, COUNT)
    second = run_job(lake.lake, INLINE, COUNT)
    assert (second.id, second.committed, second.there) == (first.id, 0, first.buckets)
    third = run_job(lake.lake, INLINE, COUNT, again=True)
    assert (third.id, third.committed) == (first.id, first.buckets)


def test_another_version_other_parameters_and_another_snap_are_other_jobs(lake: HandLake) -> None:
    ids = {
        run_job(lake.lake, INLINE, COUNT).id,
        run_job(lake.lake, INLINE, BucketJob(functions.count_sessions, version="2")).id,
        run_job(lake.lake, INLINE, BucketJob(functions.count_sessions, "1", {"x": 1})).id,
    }
    lake.store([make_event("new", 1)])
    report = run_job(lake.lake, INLINE, COUNT)
    assert len(ids | {report.id}) == 4
    assert found_by(lake, report.id) == EXPECTED | {"default/new": 1}
    with lake.lake.database.read() as connection:  # the older run of the same job gave way
        kept = connection.execute(sa.select(job_table.c.id)).scalars().all()
        assert set(connection.execute(sa.select(job_result.c.job)).scalars()) == set(kept)
    assert len(kept) == 3


def test_a_job_that_failed_goes_on_with_what_is_missing(lake: HandLake, tmp_path: Path) -> None:
    """Of the lake as it was, also when that was merged and written to meanwhile."""
    job = BucketJob(functions.fail_at, "1", {"directory": str(tmp_path), "bucket": 2})
    with pytest.raises(InvalidInput, match="not repaired"):
        run_job(lake.lake, INLINE, job)
    (tmp_path / "repaired").touch()
    segments = current(lake.lake.database).segments
    for tenant in {one.tenant for one in segments}:
        merge(lake.lake, [one for one in segments if one.tenant == tenant])
    lake.store([make_event("new", 1)])
    report = run_job(lake.lake, INLINE, job)
    assert found_by(lake, report.id) == EXPECTED
    assert report.there == 2
    begun = Counter((tmp_path / "begun").read_text().split())
    assert begun == {str(n): 2 if n == 2 else 1 for n in range(report.buckets)}


KILLED = """
import sys
from penstock.execution.calls import InlineExecutor
from penstock.lake.bucket_jobs import RESULT_BYTES_MAX, BucketJob as Job, run_job
from penstock.lake.lake import open_lake
from tests.support.execution import bucket_functions as functions
directory = sys.argv[1]
with open_lake(directory + "/data") as lake:
    parameters = {"directory": directory, "bucket": 3}
    run_job(lake, InlineExecutor(), Job(functions.kill_caller, "1", parameters))
"""


def test_a_job_whose_caller_was_killed_goes_on_with_what_is_missing(
    lake: HandLake, tmp_path: Path
) -> None:
    (tmp_path / "data" / "penstock.toml").write_text("bucket_bytes_target = 4000\n")
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == -9
    (tmp_path / "repaired").touch()
    job = BucketJob(functions.kill_caller, "1", {"directory": str(tmp_path), "bucket": 3})
    report = run_job(lake.lake, INLINE, job)
    assert (report.there, report.committed) == (3, report.buckets - 3)
    assert found_by(lake, report.id) == EXPECTED


def count_the_commit(connection: Connection, bucket: Bucket, result: dict[str, int]) -> None:
    """Something that would be there twice if it were done twice."""
    connection.execute(
        sa.insert(rejected).values(
            tenant="t",
            source=",".join(result),
            received_at=0,
            line=bucket.number,
            reason="",
            truncated=False,
            kind="",
            lines=1,
            acknowledged=False,
            file="",
            start=0,
            length=0,
        )
    )


def test_two_callers_at_once_commit_each_bucket_once(lake: HandLake, tmp_path: Path) -> None:
    job = BucketJob(functions.count_sessions, "1", commit=count_the_commit)
    both = threading.Barrier(2)
    reports = []

    class Meeting(InlineExecutor):
        """Each result of one is there when the other has the same."""

        def run(self, function, tasks):  # type: ignore[no-untyped-def]
            for done in super().run(function, tasks):
                both.wait(300)
                yield done

    def work() -> None:
        with hand_lake(tmp_path / "data", bucket_bytes_target=4000) as mine:
            reports.append(run_job(mine.lake, Meeting(), job))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reports[0].id == reports[1].id
    assert sum(one.committed for one in reports) == reports[0].buckets
    with lake.lake.database.read() as connection:
        lines = connection.execute(sa.select(rejected.c.line).order_by(rejected.c.line)).scalars()
        assert list(lines) == list(range(reports[0].buckets))
    assert found_by(lake, reports[0].id) == EXPECTED


def test_what_a_bucket_commits_is_committed_on_each_database(
    tmp_path: Path, each_database: None
) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s1", 1), make_event("s2", 1)])
        job = BucketJob(functions.count_sessions, "1", commit=count_the_commit)
        assert run_job(lake.lake, INLINE, job).committed == 1
        assert run_job(lake.lake, INLINE, job).committed == 0
        with lake.lake.database.read() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(rejected)) == 1


def test_a_commit_that_fails_keeps_no_result(lake: HandLake) -> None:
    def refuse(_connection: Connection, bucket: Bucket, _result: object) -> None:
        if bucket.number == 1:
            raise InvalidInput(what="It", why="it was not to be")

    with pytest.raises(InvalidInput):
        run_job(lake.lake, INLINE, BucketJob(functions.count_sessions, "1", commit=refuse))
    report = run_job(lake.lake, INLINE, COUNT)
    assert report.there == 1
    assert found_by(lake, report.id) == EXPECTED


def test_a_result_is_small_and_plain(lake: HandLake) -> None:
    limit = RESULT_BYTES_MAX
    fits = BucketJob(functions.say_too_much, "1", {"bytes": limit - 2})
    run_job(lake.lake, INLINE, fits)
    with pytest.raises(JobResultUnfit, match=str(limit + 1)):
        run_job(lake.lake, INLINE, BucketJob(functions.say_too_much, "1", {"bytes": limit - 1}))
    with pytest.raises(JobResultUnfit):
        run_job(lake.lake, INLINE, BucketJob(functions.say_no_json, "1"))


def test_an_empty_lake_has_no_buckets(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        report = run_job(lake.lake, INLINE, COUNT)
        assert (report.buckets, report.events) == (0, 0)
        assert found_by(lake, report.id) == {}
