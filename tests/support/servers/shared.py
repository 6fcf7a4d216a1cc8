"""One server for a run: the first process that needs it starts it, the others join."""

import fcntl
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

Server = TypeVar("Server")


@contextmanager
def shared_server(
    folder: Path, name: str, start: Callable[[], AbstractContextManager[Server]]
) -> Iterator[Server]:
    """The server that `name` stands for among the processes that share `folder`. Who joins gets a
    pickled copy, which cannot stop it; who started it waits at the end for those who joined."""
    place = folder / f"{name}.server"
    with (
        (folder / f"{name}.door").open("ab") as door,
        (folder / f"{name}.users").open("ab") as users,
    ):
        fcntl.flock(door, fcntl.LOCK_EX)
        if place.exists():
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(door, fcntl.LOCK_UN)
            yield pickle.loads(place.read_bytes())
            return
        with start() as server:
            place.write_bytes(pickle.dumps(server))
            fcntl.flock(door, fcntl.LOCK_UN)
            try:
                yield server
            finally:
                fcntl.flock(door, fcntl.LOCK_EX)  # nobody joins any more
                place.unlink()
                fcntl.flock(users, fcntl.LOCK_EX)
