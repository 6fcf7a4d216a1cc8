"""Servers that are measured."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock_jobs.simulator.demo.server import Server, running_server


@contextmanager
def quiet_server(data: Path, *arguments: str, **options: Any) -> Iterator[Server]:
    """A server whose log goes to a file, because a line for each request would bury what a
    measurement says. The file is kept, and named, where the block fails."""
    with tempfile.NamedTemporaryFile(prefix="penstock-bench-", suffix=".log", delete=False) as log:
        path = Path(log.name)
        try:
            with running_server(data, *arguments, log=log, **options) as server:
                yield server
        except BaseException:
            sys.stderr.write(f"The server's log is in {path}\n")
            raise
    path.unlink()
