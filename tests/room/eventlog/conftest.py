from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backends.eventlog.local import LocalEventLog

Open = Callable[..., LocalEventLog]


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., LocalEventLog]]:
    """Opens the log of the test; each opening stands for a process, as locks do not tell."""
    opened: list[LocalEventLog] = []

    def open_it(partitions: int = 1, **limits: int) -> LocalEventLog:
        limits = {"file_bytes_max": 64 << 20, "bytes_max": 1 << 30} | limits
        log = LocalEventLog(tmp_path / "log", partitions=partitions, **limits)
        opened.append(log)
        return log

    yield open_it
    for log in opened:
        log.close()
