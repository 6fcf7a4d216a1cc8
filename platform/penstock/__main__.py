"""The program `penstock`, also as `python -m penstock`."""

import gc

from penstock.backends.terminal.interruption import INTERRUPTED, end_now


def main() -> None:
    """Ctrl-C shows no traceback, be it while modules are loaded or while threads end."""
    try:
        from penstock.doors.cli import main

        main()
    except KeyboardInterrupt:
        end_now()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            end_now()
        raise
    finally:
        gc.freeze()  # to look for garbage at the end takes a fifth of what a short command does


if __name__ == "__main__":
    main()
