"""From a setting to the executor behind it."""

from penstock.errors import SettingInvalid
from penstock.execution import Executor
from penstock.execution.inline import InlineExecutor
from penstock.execution.processes import ProcessExecutor
from penstock.execution.settings import ExecutionSettings
from penstock.settings import Settings

#: Tries of a task whose worker is lost.
_ATTEMPTS_MAX = 3
#: Tasks of a run given to Ray and not back yet.
_INFLIGHT_MAX = 64

INLINE = "inline"
_RAY = "ray:"


def open_executor(settings: Settings) -> Executor:
    """Raises SettingInvalid, ExecutorUnreachable."""
    named = settings.room(ExecutionSettings).executor
    if named == INLINE:
        return InlineExecutor()
    if named == "processes":
        return ProcessExecutor(
            workers=settings.room(ExecutionSettings).executor_workers,
            attempts_max=_ATTEMPTS_MAX,
        )
    address = named.removeprefix(_RAY).removeprefix("//")
    if named.startswith(_RAY) and address and "/" not in address:
        from penstock.execution.cluster import RayExecutor

        return RayExecutor(
            address,
            attempts_max=_ATTEMPTS_MAX,
            inflight_max=_INFLIGHT_MAX,
            task_memory_bytes=settings.room(ExecutionSettings).executor_task_memory_bytes,
        )
    raise SettingInvalid(
        name="executor",
        origin="the settings",
        why=f"{named!r} is not inline, processes, ray://HOST:PORT or ray:auto",
    )
