"""The registry, asked in its database."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import fields

from penstock.channels.channel import channel_state
from penstock.channels.watchers import POLL_SECONDS
from penstock.checkpoints.registration import ancestors, check_chain, find_in
from penstock.database.engine import Database
from penstock.database.errors import DatabaseUnreachable
from penstock.fleet import replicas
from penstock.fleet.fleet import Standing
from penstock.fleet.replicas import Report
from penstock.fleet.sources import Piece, Pointing, Tell
from penstock.settings import Settings

_PAUSE_SECONDS = 5.0
#: Loading takes seconds, and looking costs a processor that the engine could use.
_LOOK_SECONDS_MIN = 0.1
_NAMES = [one.name for one in fields(Pointing)]


class DatabaseSource:
    """A Source."""

    def __init__(self, database: Database, settings: Settings, tenant: str, channel: str) -> None:
        self._database = database
        self._settings = settings
        self._place = (tenant, channel)
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    def pointing(self) -> Pointing:
        found = channel_state(self._database, *self._place)
        return Pointing(**{name: getattr(found, name) for name in _NAMES})

    def pointings(self, tell: Tell) -> Iterator[Pointing]:
        known: int | None = None
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            try:
                found = self.pointing()
            except DatabaseUnreachable as error:
                tell(f"{error} It is tried again.")
                pause_s = _PAUSE_SECONDS
                continue
            pause_s = max(_LOOK_SECONDS_MIN, POLL_SECONDS)
            if found.version != known:
                known = found.version
                yield found

    def chain(self, name: str) -> Sequence[Piece]:
        with self._database.read() as connection:
            found = find_in(connection, self._place[0], name)
            check_chain(connection, found)
            line = [found]
            if found.form == "delta":
                for one in ancestors(connection, found):
                    line.append(one)
                    if one.form == "whole":
                        break
        return [Piece(one.name, one.digest, one.uri, one.form, one.parent) for one in line[::-1]]

    def report(self, said: Report) -> Sequence[Standing]:
        return replicas.report(self._database, self._settings, *self._place, said)
