"""What every executor does, whatever is behind it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backends.execution.calls import ProcessExecutor
from penstock.backends.execution.executor import Executor, TaskFailed, WorkerLost
from penstock.core.errors import InvalidInput
from tests.support.execution import tasks
from tests.support.execution.tasks import Marked

ATTEMPTS_MAX, INFLIGHT_MAX = 3, 4


def test_each_task_comes_back_once_with_its_result(executor: Executor) -> None:
    done = list(executor.run(tasks.square, range(50)))
    assert sorted((one.task, one.result) for one in done) == [(n, n * n) for n in range(50)]


def test_no_tasks_no_results_and_a_second_run_is_like_the_first(executor: Executor) -> None:
    assert list(executor.run(tasks.square, [])) == []
    for _ in range(2):
        assert [one.result for one in executor.run(tasks.square, [3])] == [9]


def test_tasks_are_asked_for_as_there_is_room(executor: Executor) -> None:
    """A million of them do not sit in memory."""
    asked = 0

    def count() -> Iterator[int]:
        nonlocal asked
        for number in range(40):
            asked += 1
            yield number

    for returned, _ in enumerate(executor.run(tasks.square, count())):
        assert asked - returned <= INFLIGHT_MAX + 1
    assert asked == 40


def test_a_task_is_a_value_that_the_function_cannot_change_for_its_caller(
    executor: Executor,
) -> None:
    task = [0]
    [done] = executor.run(tasks.change_the_task, [task])
    assert (done.result, done.task, task) == (2, [0], [0])


def test_a_function_that_a_worker_cannot_import_is_refused(executor: Executor) -> None:
    def inner(number: int) -> int:
        return number

    bad: list[Callable[[int], int]] = [lambda number: number, inner]
    for function in bad:
        with pytest.raises(InvalidInput, match="at the top of a module"):
            list(executor.run(function, [1]))


def test_a_task_that_cannot_travel_is_refused(executor: Executor) -> None:
    with pytest.raises(InvalidInput, match="task"):
        list(executor.run(tasks.fail, [lambda: 1]))


def test_an_error_of_our_family_comes_as_it_was_raised(executor: Executor) -> None:
    with pytest.raises(InvalidInput) as raised:
        list(executor.run(tasks.refuse_odd, [1]))
    assert raised.value.facts == {"what": "The number 1", "why": "it is odd"}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (tasks.fail, "KeyError"),
        (tasks.exit_at_once, "SystemExit"),
        (tasks.fail_untold, "onetwo"),
        (tasks.raise_with_a_fact_that_stays, "it is odd|lambda"),
        (tasks.give_back_what_stays, "pickle"),
    ],
)
def test_any_other_error_names_the_task_and_the_line(
    executor: Executor, function: Callable[[int], object], words: str
) -> None:
    with pytest.raises(TaskFailed, match=words) as raised:
        list(executor.run(function, [7]))
    assert raised.value.facts["task"] == "7"
    assert "line" in str(raised.value)
    assert "Traceback" in str(raised.value.facts["traceback"])


def test_the_first_error_ends_the_run_after_what_was_under_way(
    executor: Executor, tmp_path: Path
) -> None:
    asked: list[int] = []

    def ask() -> Iterator[Marked]:
        for number in (0, 2, 4, 5, *range(6, 99, 2)):
            asked.append(number)
            yield Marked(number, str(tmp_path))

    done: list[int] = []
    with pytest.raises(InvalidInput, match="5"):
        done.extend(one.task.number for one in executor.run(tasks.refuse_odd_in_turn, ask()))
    assert sorted([*done, 5]) == asked
    assert len(asked) <= 4 + 2 * INFLIGHT_MAX


def test_an_error_of_the_tasks_source_ends_the_run(executor: Executor) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(executor.run(tasks.square, broken()))
    assert [one.result for one in executor.run(tasks.square, [3])] == [9]


def test_tasks_of_lost_workers_are_done_again(losing: Executor, tmp_path: Path) -> None:
    marked = [Marked(number, str(tmp_path)) for number in range(6)]
    done = sorted(one.result for one in losing.run(tasks.die_first_time, marked))
    assert done == list(range(6))
    assert [one.begun() for one in marked] == [2, 1, 1, 2, 1, 1]


def test_a_task_that_takes_its_workers_along_is_given_up(losing: Executor, tmp_path: Path) -> None:
    """And it alone: the others are not blamed for it. It comes last, since a task that nobody has
    begun when a run fails is not begun any more."""
    marked = [Marked(number, str(tmp_path)) for number in (0, 2, 3, 1)]
    done: list[int] = []
    with pytest.raises(WorkerLost, match="number=1") as raised:
        done.extend(one.result for one in losing.run(tasks.die_always, marked))
    assert raised.value.facts["attempts"] == ATTEMPTS_MAX
    assert [one.begun() for one in marked] == [1, 1, 1, ATTEMPTS_MAX]
    assert sorted(done) == [0, 2, 3]


def test_a_run_that_is_left_ends_its_work(losing: Executor, tmp_path: Path) -> None:
    first = [Marked(0, str(tmp_path))]
    (tmp_path / "go").touch()
    run = losing.run(tasks.wait_for_file, first * 20)
    process = next(run).result
    run.close()  # type: ignore[attr-defined]
    assert [one.result for one in losing.run(tasks.square, [3])] == [9]
    assert process != os.getpid()


def test_runs_that_are_left_while_their_tasks_end(losing: Executor) -> None:
    """Ray would end this process, had it to cancel one that is done in that moment."""
    for number in range(3 if isinstance(losing, ProcessExecutor) else 100):
        run = losing.run(tasks.square, range(50))
        for _ in range(1 + number % 5):
            next(run)
        run.close()  # type: ignore[attr-defined]
    assert [one.result for one in losing.run(tasks.square, [3])] == [9]


def test_closing_leaves_no_process(tmp_path: Path) -> None:
    """Also of a run that nobody reads to its end, with a task that does not end."""
    executor = ProcessExecutor(workers=2)
    with executor:
        first, never = Marked(0, str(tmp_path)), Marked(1, str(tmp_path / "none"))
        (tmp_path / "none").mkdir()
        (tmp_path / "go").touch()
        run = executor.run(tasks.wait_for_file, [first, never, never])
        process = next(run).result
        assert children() >= {process}
    assert process not in children()
    assert not children() & workers_of(executor)
    run.close()  # type: ignore[attr-defined]


def children() -> set[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return {int(line) for line in listed.stdout.split()}


def workers_of(executor: ProcessExecutor) -> set[int]:
    return {one.guarded.process.pid for run in executor._runs for one in run.workers}
