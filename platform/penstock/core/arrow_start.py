"""The start of Arrow in processes of Penstock's own: without pandas, with one thread for linear
algebra, and with which memory.

Arrow loads pandas at the first value that it converts, to ask whether it is a data frame. That
takes longer than many a command, and 30 MB. Where pandas cannot be found, Arrow asks no more.
NumPy comes with Arrow. Each of its threads spins for a tenth of a second when it starts.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def start_arrow_light() -> None:
    """Keep pandas and threads away. Call it before Arrow is loaded, where nobody wants data
    frames."""
    waiting = {finder.name for finder in sys.meta_path if isinstance(finder, _LightFinder)}
    for name in {"numpy", "pyarrow"} - waiting - sys.modules.keys():
        sys.meta_path.insert(0, _LightFinder(name))


def take_memory_from_system() -> None:
    """Use the system's allocator, as Arrow's own keeps memory. Call it before Arrow is loaded."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
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


class _LightFinder(MetaPathFinder):
    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LightLoader(spec.loader)
        return spec


class _LightLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        with _one_thread():
            self._loader.exec_module(module)
        if module.__name__ == "pyarrow" and "pandas" not in sys.modules:
            unfindable = NoPandas()
            sys.meta_path.insert(0, unfindable)
            module.array([0])
            sys.meta_path.remove(unfindable)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Load OpenBLAS with one thread, unless the user chose. Trainers that we start get more."""
    chosen = _BLAS_THREADS in os.environ
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        yield
    finally:
        if not chosen:
            del os.environ[_BLAS_THREADS]


class NoPandas(MetaPathFinder):
    """Hides pandas, which costs 30 MB and shows some values in other words."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)
