"""Runs: each attempt once, whatever happens; the same table on every executor."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.errors import InvalidInput
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import Attempt, attempts_of, checkpoints_tried, runs_of
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks import run
from penstock_jobs.benchmarks.attempt import AgentUnusable
from penstock_jobs.benchmarks.run import (
    BenchmarkStopped,
    RunOptions,
    RunReport,
    ServingUnreachable,
    run_suite,
)
from penstock_jobs.benchmarks.suite import Suite, read_suite
from tests.room.benchmarks.conftest import TENANT
from tests.support.suite_factory import SOLVE, make_suite

#: Solves what the seed says, so that results differ by attempt and are the same again.
BY_SEED = "expr $PENSTOCK_SEED % 2 > /dev/null && echo 42 > answer; true"


@pytest.fixture
def suite(isolation: None, tmp_path: Path) -> Suite:
    return read_suite(make_suite(tmp_path / "suite", 3, "attempts = 2"))


def run_here(lake: Lake, suite: Suite, options: RunOptions | str, **more: object) -> RunReport:
    if isinstance(options, str):
        options = RunOptions(agent=options)
    with InlineExecutor() as executor:
        return run_suite(lake, executor, suite, "new", options, tenant=TENANT, **more)  # type: ignore[arg-type]


def results(lake: Lake, suite: Suite, checkpoint: str = "new") -> list[Attempt]:
    place = AttemptScope(TENANT, suite.name, suite.version, checkpoint)
    return [kept.result for kept in attempts_of(lake.database, place)]


def table(found: Sequence[Attempt]) -> list[Attempt]:
    """Without what differs from run to run."""
    return [replace(one, latency_s=None) for one in found]


@pytest.mark.smoke
def test_each_attempt_is_there_once(lake: Lake, suite: Suite) -> None:
    told: list[tuple[int, int]] = []
    report = run_here(lake, suite, BY_SEED, follow=lambda done, of: told.append((done, of)))
    found = results(lake, suite)
    assert [(one.task, one.attempt) for one in found] == [
        (f"task-{task}", attempt) for task in range(3) for attempt in range(2)
    ]
    assert {one.score for one in found} == {0.0, 1.0}
    assert (report.made, report.known) == (6, 0)
    assert told == [(number, 6) for number in range(1, 7)]

    again = run_here(lake, suite, "exit 75")
    assert (again.made, again.known) == (0, 6)
    assert results(lake, suite) == found
    more = run_here(lake, suite, RunOptions(agent=BY_SEED, attempts=3, tasks=("task-1",)))
    assert (more.made, more.known) == (1, 6)
    assert checkpoints_tried(lake.database, TENANT, "mini") == ["new"]


def test_killed_at_any_point_and_started_again(lake: Lake, suite: Suite) -> None:
    """Whoever runs it is killed several times, each time a little later."""
    code = f"""
from pathlib import Path
from penstock.backends.execution.calls import ProcessExecutor
from penstock.lake.lake import open_lake
from penstock_jobs.benchmarks.run import RunOptions, run_suite
from penstock_jobs.benchmarks.suite import read_suite
executor = ProcessExecutor(workers=2)
with open_lake({str(lake.settings.data)!r}) as lake, executor:
    suite = read_suite(Path({str(suite.folder)!r}))
    print("begun", flush=True)
    run_suite(lake, executor, suite, "new", RunOptions(agent={BY_SEED!r}, attempts=4),
        tenant={TENANT!r}, follow=lambda done, of: print(done, flush=True))
"""
    kills = 0
    for wait_for in ("begun", "1", "6"):  # of 12
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.strip() == wait_for:
                    child.send_signal(signal.SIGKILL)
                    kills += 1
                    break
            child.stdout.read()
        found = results(lake, suite)
        assert len({(one.task, one.attempt) for one in found}) == len(found)
    assert kills == 3
    between = results(lake, suite)
    assert 4 <= len(between) < 12

    last = run_here(lake, suite, RunOptions(agent=BY_SEED, attempts=4))
    assert last.made == 12 - len(between)
    whole = results(lake, suite)
    assert [one for one in whole if one in between] == between
    with InlineExecutor() as executor:
        options = RunOptions(agent=BY_SEED, attempts=4)
        run_suite(lake, executor, suite, "old", options, tenant=TENANT)
    assert table(results(lake, suite, "old")) == table(whole)


def test_two_runs_at_once_make_one_table(lake: Lake, suite: Suite) -> None:
    reports: list[RunReport] = []
    work = lambda: reports.append(run_here(lake, suite, BY_SEED))  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 2
    assert len(results(lake, suite)) == 6


def test_errors_are_recorded_and_never_tried_anew(lake: Lake, suite: Suite) -> None:
    agent = f'test "$PENSTOCK_TASK" = task-1 && exit 75; {SOLVE}'
    run_here(lake, suite, agent)
    found = {(one.task, one.attempt): one for one in results(lake, suite)}
    assert found["task-1", 0].error == "the agent exited with 75: try again"
    assert (found["task-1", 0].score, found["task-1", 0].retries) == (None, 2)
    assert found["task-0", 0].score == 1
    assert run_here(lake, suite, SOLVE).made == 0
    assert {one.error is None for one in results(lake, suite) if one.task == "task-1"} == {False}


def test_how_it_was_run_is_recorded(lake: Lake, suite: Suite) -> None:
    options = RunOptions(
        agent="sleep 9; exit 0", isolated=False, environment={"KEY": "secret"}, attempts=1,
        tasks=("task-0",),
    )  # fmt: skip
    short = replace(suite.tasks[0], limits=replace(suite.tasks[0].limits, seconds=1))
    report = run_here(lake, replace(suite, tasks=(short,)), options)
    (known,) = runs_of(lake.database, report.scope)
    assert known.source == "sleep 9; exit 0"
    assert known.conditions["isolated"] is False
    assert known.conditions["environment"] == ["KEY"]
    assert "secret" not in str(known)
    assert known.problems == [{"task": "task-0", "attempt": 0, "problem": "timed out"}]
    assert known.finished_at is not None


def test_what_is_wrong_with_the_caller_costs_no_attempt(lake: Lake, suite: Suite) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gone = RunOptions(agent=SOLVE, serving=f"http://127.0.0.1:{port}/v1")
    with pytest.raises(ServingUnreachable):
        run_here(lake, suite, gone)
    with pytest.raises(AgentUnusable, match="could not be run"):
        run_here(lake, suite, "no-such-agent")
    with pytest.raises(InvalidInput, match="did you mean task-0"):
        run_here(lake, suite, RunOptions(agent=SOLVE, tasks=("taks-0",)))
    assert results(lake, suite) == []


def test_an_agent_that_is_called_wrongly_costs_no_attempt(lake: Lake, suite: Suite) -> None:
    with pytest.raises(AgentUnusable, match=r"first 5 attempts ended alike: .*status 3"):
        run_here(lake, suite, "echo what is this; exit 3")
    assert results(lake, suite) == []
    # One that fails now and then is as bad as it is, also where it begins so.
    sometimes = 'test "$PENSTOCK_TASK" = task-2 || exit 3; echo 42 > answer'
    run_here(lake, suite, sometimes)
    assert [one.score for one in results(lake, suite)] == [0, 0, 0, 0, 1, 1]
    # Once there are results, it is known how it is called.
    run_here(lake, suite, RunOptions(agent="exit 3", attempts=4))
    assert len(results(lake, suite)) == 12


def test_a_run_of_nothing_but_errors_stops(
    lake: Lake, suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ERRORS_MAX", 4)
    with pytest.raises(BenchmarkStopped, match="exited with 75"):
        run_here(lake, suite, "exit 75")
    assert len(results(lake, suite)) == 4


def test_the_serving_address_is_reached_from_the_sandbox(lake: Lake, suite: Suite) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"42\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = server.getsockname()[1]
        ask = (
            f"{sys.executable} -c 'import os, socket, urllib.parse as u; "
            'at = u.urlsplit(os.environ["PENSTOCK_MODEL_URL"]); '
            "print(socket.create_connection((at.hostname, at.port)).recv(9).decode())' > answer"
        )
        options = RunOptions(agent=ask, serving=f"http://localhost:{port}/v1", attempts=1)
        run_here(lake, suite, options)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert [one.score for one in results(lake, suite)] == [1.0, 1.0, 1.0]


def test_an_agent_sees_neither_the_suite_nor_the_lake(
    lake: Lake, isolation: None, tmp_path: Path
) -> None:
    suite = read_suite(make_suite(tmp_path / "repository" / "suite", 1))
    (tmp_path / "repository" / "notes").write_text("to be seen")
    look = f"ls -R {tmp_path} > all; grep -q notes all || exit 3; "
    look += "grep -q 'check.py\\|penstock.db\\|suite.toml' all || echo 42 > answer"
    report = run_here(lake, suite, RunOptions(agent=look, visible=(str(tmp_path),)))
    assert report.made == 1
    assert results(lake, suite)[0].score == 1
