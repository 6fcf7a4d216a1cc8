"""Holding a race at its worst moment: a transaction stops between two of its statements, and
another runs into it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from penstock.backends.database.engine import Database
from tests.support.servers.postgres import PostgresServer

PATIENCE_SECONDS = 180


class Running:
    """Work in a thread. What it raises is raised again by `finish`."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._raised: list[BaseException] = []
        self._work = work
        self.thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self.thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by `finish`
            self._raised.append(error)

    def finish(self) -> None:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        if self._raised:
            raise self._raised[0]


class Stopped(Running):
    """Stopped after its first statement that holds these words, until it is to finish."""

    def __init__(self, database: Database, words: str, work: Callable[[], object]) -> None:
        super().__init__(work)
        self._here, self._go_on = threading.Event(), threading.Event()

        def look(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
            if threading.current_thread() is self.thread and words in statement:
                self._here.set()
                assert self._go_on.wait(PATIENCE_SECONDS)

        event.listen(database.engine, "after_cursor_execute", look)
        self.start()
        assert self._here.wait(PATIENCE_SECONDS)

    def finish(self) -> None:
        self._go_on.set()
        super().finish()


@contextmanager
def waiting_or_done(server: PostgresServer, work: Callable[[], object]) -> Iterator[None]:
    """The block begins when this work, in a thread, waits for a lock, or is done."""
    running = Running(work)
    running.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while running.thread.is_alive() and not _somebody_waits(server):
        assert time.monotonic() < deadline
    yield
    running.finish()


def _somebody_waits(server: PostgresServer) -> bool:
    return bool(server.execute("SELECT 1 FROM pg_locks WHERE NOT granted"))
