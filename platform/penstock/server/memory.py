"""How the process keeps memory: what one request or flush gave back, the next takes again.

Left alone, the C library returns each large buffer to the system at once and asks for it again a
moment later; on virtual machines that costs more than the work on the buffer.
"""

import ctypes

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT_BYTES_MAX = 128 * 1024 * 1024
#: The largest that the C library accepts.
_FROM_HEAP_BYTES_MAX = 32 * 1024 * 1024
#: Threads share so many heaps, each of which keeps memory of its own.
_HEAPS_MAX = 2


def keep_memory() -> None:
    """Where the C library has no such setting nothing changes."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_ARENA_MAX, _HEAPS_MAX)
    set_option(_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
    set_option(_MMAP_THRESHOLD, _FROM_HEAP_BYTES_MAX)
    pa.set_memory_pool(pa.system_memory_pool())  # its own would give memory back early again
