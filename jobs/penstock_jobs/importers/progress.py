"""What was imported before: only sources that changed since are read again, and of large logs only
what was appended."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from xxhash import xxh3_128_hexdigest

from penstock.access.privacy.orders import CONTENT, ErasedPart, ErasureOrder, ErasureStep
from penstock.backends.database.engine import Database, clock_us, insert_of
from penstock_jobs.importers.grown_logs import LogReading
from penstock_jobs.importers.importer import Importer, LogImporter, all_importers
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.tables import imported_source

_CHANGING = ("path", "format", "mark", "imported_at")


class ReadSource(NamedTuple):
    """A source all of whose events were taken, as it was with this mark."""

    source: Source
    importer: Importer
    #: Empty while its end is not taken yet.
    mark: str
    reading: bytes | None


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
        #: By digest: the mark, and the format.
        self._known: dict[str, tuple[str, str]] = {
            row.digest: (row.mark, row.format) for row in rows
        }

    def knows(self, source: Source, mark: str) -> bool:
        return self._known.get(_digest(source), ("", ""))[0] == mark

    def importer_of(self, source: Source) -> Importer | None:
        """Whose it was when it was read, if it did not change since."""
        _, name = self._known.get(_digest(source), ("", ""))
        importer = next((each for each in all_importers() if each.name == name), None)
        try:
            unchanged = importer is not None and self.knows(source, mark_of(source, importer))
        except OSError:
            return None
        return importer if unchanged else None

    def reading_of(self, source: Source, importer: LogImporter) -> LogReading | None:
        """A log as far as it was read before, if that was worth remembering."""
        columns = imported_source.c
        of_source = sa.and_(columns.tenant == self._tenant, columns.digest == _digest(source))
        with self._database.read() as connection:
            stored = connection.scalar(
                sa.select(columns.reading).where(of_source, columns.format == importer.name)
            )
        return LogReading.from_store(source, importer, stored) if stored else None

    def note(self, sources: Sequence[ReadSource]) -> None:
        """All events of these sources, as they were with these marks, are in the log."""
        rows = [self._row(source) for source in sources if source.mark or source.reading]
        if not rows:
            return
        with self._database.write() as connection:
            insert = insert_of(connection)(imported_source)
            newest = {name: insert.excluded[name] for name in _CHANGING}
            newest["reading"] = sa.func.coalesce(insert.excluded.reading, imported_source.c.reading)
            keys = ["tenant", "digest"]
            connection.execute(
                insert.on_conflict_do_update(index_elements=keys, set_=newest),
                [row | {"imported_at": clock_us(connection)} for row in rows],
            )
        for row in rows:
            self._known[row["digest"]] = row["mark"], row["format"]

    def _row(self, read: ReadSource) -> dict[str, Any]:
        return {
            "tenant": self._tenant,
            "digest": _digest(read.source),
            "path": os.fsencode(read.source.real).decode(errors="backslashreplace"),
            "format": read.importer.name,
            "mark": read.mark,
            "reading": read.reading,
        }


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
    return xxh3_128_hexdigest(f"{importer.name}:{importer.version}:{source.mark()}".encode())


def _digest(source: Source) -> str:
    return xxh3_128_hexdigest(os.fsencode(source.real))


def _forget_sources(order: ErasureOrder) -> Iterator[ErasedPart]:
    mine = sa.delete(imported_source).where(imported_source.c.tenant == order.scope.tenant)
    with order.lake.database.write() as connection:
        forgotten = connection.execute(mine).rowcount
    yield ErasedPart({"imported sources": forgotten})


PART = ErasureStep(CONTENT, _forget_sources)
