"""The start of Arrow in processes of Penstock's own: without pandas, and with which memory.

Arrow loads pandas at the first value that it converts, to ask whether it is a data frame. That
takes longer than many a command, and 30 MB. Where pandas cannot be found, Arrow asks no more.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def start_without_pandas() -> None:
    """Keep pandas away. Call it before Arrow is loaded, where nobody wants data frames."""
    waits = any(isinstance(finder, _ArrowFinder) for finder in sys.meta_path)
    if "pyarrow" not in sys.modules and not waits:
        sys.meta_path.insert(0, _ArrowFinder())


def take_memory_from_system() -> None:
    """Use the system's allocator, as Arrow's own keeps memory. Call it before Arrow is loaded."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT_BYTES_MAX = 128 * 1024 * 1024
#: The C library accepts no more.
_FROM_HEAP_BYTES_MAX = 32 * 1024 * 1024
_HEAPS_MAX = 1


def keep_freed_memory() -> None:
    """Reuse freed memory for the next request or flush, until Arrow's pool gives it back. Call it
    before there are threads: each would get a heap of its own, which gives nothing back."""
    import ctypes

    take_memory_from_system()
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_ARENA_MAX, _HEAPS_MAX)
    set_option(_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
    set_option(_MMAP_THRESHOLD, _FROM_HEAP_BYTES_MAX)


class _ArrowFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ArrowLoader(spec.loader)
        return spec


class _ArrowLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        if "pandas" not in sys.modules:
            unfindable = NoPandas()
            sys.meta_path.insert(0, unfindable)
            module.array([0])
            sys.meta_path.remove(unfindable)


class NoPandas(MetaPathFinder):
    """Hides pandas, which costs 30 MB and shows some values in other words."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)
