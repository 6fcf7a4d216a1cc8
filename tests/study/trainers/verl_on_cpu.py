"""verl on a machine without accelerators. verl has no platform for that and lets others register
theirs: VERL_USE_EXTERNAL_MODULES names this module. PYTHONPATH finds it, since verl brings along a
package `tests` that hides ours."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_cuda import PlatformCUDA

#: The name of a file that is not there yet. The one who makes the snapshot `DIES_AT` writes its
#: number into it, kills torchrun, and waits for what becomes of it.
DIES, DIES_AT = "VERL_DIES", "step_2"
_MEMORY = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")


@PlatformRegistry.register(platform="cpu")
class Processors(PlatformCUDA):  # type: ignore[misc]
    device_name = "cpu"
    vendor_name = "none"
    device_module = SimpleNamespace(
        **vars(torch.cpu) | dict.fromkeys(_MEMORY, lambda: 0),
        mem_get_info=lambda: (0, 0),
        empty_cache=lambda: None,
        set_rng_state=torch.set_rng_state,
    )

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False

    def current_device(self) -> str:
        return "cpu"

    def communication_backend_name(self) -> str:
        return "gloo"


def _die() -> None:
    rename, died = Path.rename, Path(os.environ[DIES])

    def dying(self: Path, target: Any) -> Any:
        if Path(target).name == DIES_AT and not died.exists():
            died.write_text(str(os.getpid()))
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        return rename(self, target)

    Path.rename = dying  # type: ignore[method-assign]


if DIES in os.environ and "LOCAL_RANK" in os.environ:
    _die()
