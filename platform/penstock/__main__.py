"""The program `penstock`, also as `python -m penstock`."""

import atexit
import gc

from penstock.backends.terminal.interruption import INTERRUPTED, end_now, leave

#: Thresholds of the garbage collector. What modules make while they are loaded is no garbage.
_COLLECTIONS = (200_000, 20, 100)


def main() -> None:
    """Ctrl-C shows no traceback, be it while modules are loaded or while threads end."""
    status: object = 1
    gc.set_threshold(*_COLLECTIONS)
    atexit.register(lambda: leave(status))  # the first to be registered is the last to be called
    try:
        from penstock.doors.cli import main

        main()
    except KeyboardInterrupt:
        end_now()
    except SystemExit as ended:
        status = ended.code
        if status == INTERRUPTED:
            end_now()
        raise


if __name__ == "__main__":
    main()
