"""Telling the registry what a replica has loaded, and hearing how its fleet stands."""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.fleet.fleet_status import Standing
from penstock.fleet.registry_source import Source
from penstock.fleet.replicas import LEFT, Report

_LEAVE_SECONDS_MAX = 5.0


class Reporter:
    """Reports from a thread of its own, so that an outage of the registry holds up no loading."""

    def __init__(
        self,
        source: Source,
        first: Report,
        *,
        every_s: float,
        on_standing: Callable[[Standing], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        """`on_standing` is called when the replica's part of the fleet becomes mixed or whole,
        `on_trouble` when reports are no longer taken; both from the thread."""
        self._source = source
        self._said = first
        self._every_s = every_s
        self._on_standing = on_standing
        self._on_trouble = on_trouble
        self._news: SimpleQueue[None] = SimpleQueue()
        self._ended = False
        self._in_trouble = False
        self._known: bool | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say(self, said: Report) -> None:
        """To be reported at once."""
        self._said = said
        self._news.put(None)

    def stop(self, *, leave: bool) -> None:
        """Say the last thing, or that the replica leaves the fleet."""
        if leave:
            self._said = replace(self._said, state=LEFT)
        self._ended = True
        self._news.put(None)
        self._thread.join(_LEAVE_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            ended = self._ended
            self._report()
            if ended:
                return
            self._wait()

    def _wait(self) -> None:
        try:
            self._news.get(timeout=self._every_s)
            while True:
                self._news.get_nowait()
        except Empty:
            return

    def _report(self) -> None:
        said = self._said
        try:
            found = self._source.report(said)
        except PenstockError as error:
            if not self._in_trouble:
                self._on_trouble(" ".join(str(error).split()))
            self._in_trouble = True
            return
        self._in_trouble = False
        if said.state != LEFT:
            self._notice(found, said.part)

    def _notice(self, found: Sequence[Standing], part: str) -> None:
        """A fleet that is being rolled out is mixed once and whole once; what is neither, as one
        that is all behind, is no news."""
        for one in found:
            if one.part == part and (one.mixed or one.whole) and one.mixed is not self._known:
                self._known = one.mixed
                self._on_standing(one)
