"""What a worker process of ProcessExecutor runs: `python -m penstock.execution.worker FD`."""

import os
import pickle
import select
import sys
import threading
from multiprocessing.connection import Connection

from penstock.execution.calls import perform


def main(file: int) -> None:
    """Answer calls until the caller is gone."""
    os.dup2(2, 1)  # what tasks print is not the caller's answer
    threading.Thread(target=_end_with_caller, args=[file], daemon=True).start()
    connection = Connection(file)
    try:
        sys.path[:] = pickle.loads(connection.recv_bytes())
        while True:
            connection.send_bytes(perform(connection.recv_bytes()))
    except (EOFError, OSError):
        pass


def _end_with_caller(file: int) -> None:
    """Work for a caller that was killed is work for nobody."""
    poll = select.poll()
    poll.register(file, 0)  # a hang-up is always told
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
