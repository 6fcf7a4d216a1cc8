"""What was imported before: only sources that changed since are read again."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa
from xxhash import xxh3_128_hexdigest

from penstock.database.engine import Database, clock_us, insert_of
from penstock_jobs.importers.importer import Importer
from penstock_jobs.importers.registry import all_importers
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.tables import imported_source

_CHANGING = ("path", "format", "mark", "imported_at")


class ImportProgress:
    """Of one tenant. All that this says is whether reading can be spared: the lake itself keeps
    each event once."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant
        columns = imported_source.c
        stored = sa.select(columns.digest, columns.mark, columns.format)
        with database.read() as connection:
            rows = connection.execute(stored.where(columns.tenant == tenant)).all()
        self._marks = {row.digest: row.mark for row in rows}
        self._formats = {row.digest: row.format for row in rows}

    def knows(self, source: Source, mark: str) -> bool:
        return self._marks.get(_digest(source)) == mark

    def importer_of(self, source: Source) -> Importer | None:
        """Whose it was when it was read, if it did not change since."""
        name = self._formats.get(_digest(source))
        importer = next((each for each in all_importers() if each.name == name), None)
        try:
            unchanged = importer is not None and self.knows(source, mark_of(source, importer))
        except OSError:
            return None
        return importer if unchanged else None

    def note(self, sources: Sequence[tuple[Source, Importer, str]]) -> None:
        """All events of these sources, as they were with these marks, are in the log."""
        if not sources:
            return
        with self._database.write() as connection:
            now_us = clock_us(connection)
            rows = [
                {
                    "tenant": self._tenant,
                    "digest": _digest(source),
                    "path": os.fsencode(source.real).decode(errors="backslashreplace"),
                    "format": importer.name,
                    "mark": mark,
                    "imported_at": now_us,
                }
                for source, importer, mark in sources
            ]
            insert = insert_of(connection)(imported_source)
            newest = {name: insert.excluded[name] for name in _CHANGING}
            keys = ["tenant", "digest"]
            connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=newest), rows)
        for source, importer, mark in sources:
            digest = _digest(source)
            self._marks[digest], self._formats[digest] = mark, importer.name


class WatchedSources:
    """Which sources a watcher has to look at: those that changed, and all now and then."""

    def __init__(self, again_s: float) -> None:
        self._again_s = again_s
        self._looks: dict[Path, tuple[str, float]] = {}

    def is_due(self, source: Source, importer: Importer) -> bool:
        try:
            mark = mark_of(source, importer)
        except OSError:
            return False
        now = time.monotonic()
        known, until = self._looks.get(source.real, ("", now))
        if mark == known and now < until:
            return False
        self._looks[source.real] = mark, now + self._again_s
        return True


def mark_of(source: Source, importer: Importer) -> str:
    """Raises OSError."""
    return xxh3_128_hexdigest(f"{importer.name}:{importer.version}:{source.mark()}".encode())


def _digest(source: Source) -> str:
    return xxh3_128_hexdigest(os.fsencode(source.real))
