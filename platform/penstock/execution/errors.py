"""The errors of the executor."""

from penstock.errors import PenstockError


class ExecutorUnreachable(PenstockError, exit_status=3):
    """The executor {address} cannot be reached: {why}."""


class TaskFailed(PenstockError):
    """The task {task} of {function} failed: {why}."""


class WorkerLost(PenstockError):
    """The task {task} of {function} was given up: its worker was lost {attempts} times, the last
    time because {why}. A task that is too large for the memory of a worker ends like this."""
