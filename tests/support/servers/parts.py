"""The processes of a running service."""

from contextlib import suppress
from pathlib import Path

from penstock_jobs.simulator.demo.server import Server


def pids_of(server: Server) -> dict[str, int]:
    """The gateway and the writer, if they are up."""
    pid, found = server.process.pid, {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # it ended meanwhile
            found[Path(f"/proc/{child}/comm").read_text().strip()] = int(child)
    return found
