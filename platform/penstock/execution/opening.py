"""From a setting to the executor behind it."""

from penstock.errors import SettingInvalid
from penstock.execution import Executor
from penstock.execution.inline import InlineExecutor
from penstock.execution.processes import ProcessExecutor
from penstock.settings import Settings

INLINE = "inline"
_RAY = "ray:"


def open_executor(settings: Settings) -> Executor:
    """Raises SettingInvalid, ExecutorUnreachable."""
    named = settings.executor
    if named == INLINE:
        return InlineExecutor()
    if named == "processes":
        return ProcessExecutor(
            workers=settings.executor_workers, attempts_max=settings.executor_attempts_max
        )
    address = named.removeprefix(_RAY).removeprefix("//")
    if named.startswith(_RAY) and address and "/" not in address:
        from penstock.execution.cluster import RayExecutor

        return RayExecutor(
            address,
            attempts_max=settings.executor_attempts_max,
            inflight_max=settings.executor_inflight_max,
            task_memory_bytes=settings.executor_task_memory_bytes,
        )
    raise SettingInvalid(
        name="executor",
        origin="the settings",
        why=f"{named!r} is not inline, processes, ray://HOST:PORT or ray:auto",
    )
