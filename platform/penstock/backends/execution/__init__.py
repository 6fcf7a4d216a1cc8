"""Execution of one function over many tasks: here, in processes or on a cluster."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a sandbox imports this package, and starts once per attempt
    from penstock.backends.execution.executor import Executor
    from penstock.core.settings import Settings


def open_executor(settings: "Settings") -> "Executor":
    """Open the executor that the setting `executor` names. Raises SettingInvalid,
    ExecutorUnreachable."""
    from penstock.backends.execution.executor import INLINE, ExecutionSettings
    from penstock.core.errors import SettingInvalid

    limits = settings.room(ExecutionSettings)
    name = limits.executor
    if name == INLINE:
        from penstock.backends.execution.calls import InlineExecutor

        return InlineExecutor()
    if name == "processes":
        from penstock.backends.execution.calls import ProcessExecutor

        return ProcessExecutor(workers=limits.executor_workers)
    scheme, _, rest = name.partition(":")
    address = rest.removeprefix("//")
    if scheme == "ray" and address and "/" not in address:
        from penstock.backends.execution.ray import RayExecutor

        return RayExecutor(address, limits.executor_task_memory_bytes)
    why = f"{name!r} is not inline, processes, ray://HOST:PORT or ray:auto"
    raise SettingInvalid(name="executor", origin="the settings", why=why)
