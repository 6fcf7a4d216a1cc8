"""Sessions of a plan in columns: in memory are only names and a few numbers each.

The rest is on disk. Exclusions get it in portions: first all linked sessions, so that chains are
whole; then the others, each a chain by itself.
"""

import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.files import make_directory
from penstock.events.event import CONSENT_UNKNOWN
from penstock.lake.query.spill import SPILL_FOLDER
from penstock_jobs.shards.selection.dictionary_codes import (
    Numbers,
    from_codes,
    positions_in,
    single_array,
)
from penstock_jobs.shards.selection.session_facts import (
    SessionFacts,
    SessionLinks,
    SessionProfile,
    SnapshotQueries,
)

#: The approximate number of rows in memory.
ROWS_AT_ONCE = 10_000


class RowSpool:
    """Rows in an unnamed file, which lives as long as this object."""

    def __init__(self, folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        make_directory(folder)
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 it is open as long as this object
        weakref.finalize(self, self._file.close)
        self.schema = schema
        self.count = 0
        with pa.ipc.new_file(self._file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                self.count += batch.num_rows
        self._file.flush()

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else columns
        fields = sorted(self.schema.names.index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        reader = pa.ipc.open_file(self._file, options=options)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)

    def column(self, name: str) -> pa.ChunkedArray:
        # Copied, since a read column keeps its whole batch in memory.
        chunks = [pa.concat_arrays([batch[name]]) for batch in self.batches([name])]
        return pa.chunked_array(chunks, self.schema.field(name).type)


_TEXT = pa.string()


#: Facts of whole chains, and the numbers of their profiles among all sessions.
Portion = tuple[SessionFacts, Numbers]


class PlannedSessions:
    """Sessions of a query, the rest of their chains, and all that these repeat.

    Only sessions in the lake, sorted and numbered."""

    def __init__(
        self, queries: SnapshotQueries, sessions: pa.ChunkedArray, links: SessionLinks
    ) -> None:
        self.links = links
        own = self._linked_of(sessions)
        more = links.with_origins(own) - set(own)
        self._linked = sorted({*own, *more})
        asked = single_array(sessions)
        if more:
            asked = pa.concat_arrays([asked, pa.array(sorted(more), _TEXT)]).sort()
        rows = pa.table({"session_id": asked})
        self._decisions = queries.decisions(rows)
        tables = queries.facts(rows)
        first = next(tables)
        batches = (each for table in chain([first], tables) for each in table.to_batches())
        folder = queries.lake.settings.data / SPILL_FOLDER
        self._rows = RowSpool(folder, first.schema, batches)
        self.ids = asked
        if self._rows.count < len(asked):
            self.ids = single_array(self._rows.column("session_id"))
        self._spoken = np.zeros(len(self.ids), np.uint8)
        self._words: list[str] = [CONSENT_UNKNOWN]

    def __len__(self) -> int:
        return len(self.ids)

    def chains(self) -> pa.DictionaryArray:
        """Return the first session of each chain, in the lake or not."""
        return self._by_number(self.links.chain)

    def origins(self) -> pa.DictionaryArray:
        """Return the first session of each origin."""
        return self._by_number(self.links.origin)

    def _by_number(self, name_of: Callable[[str], str]) -> pa.DictionaryArray:
        places = positions_in(self.ids, self.links.linked)
        places = np.sort(places[places >= 0])
        names = pa.array([name_of(name) for name in self.ids.take(places).to_pylist()], _TEXT)
        known = self.ids
        numbers: Numbers = np.arange(len(known), dtype=np.int32)
        others = names.filter(pa.array(positions_in(known, names) < 0)).unique()
        if len(others):
            known = pa.concat_arrays([known, others]).sort()
            numbers = positions_in(known, self.ids)
        numbers[places] = positions_in(known, names)
        return from_codes(numbers, known)

    def column(self, name: str) -> pa.ChunkedArray:
        """Read a column in the order of sessions."""
        return self._rows.column(name)

    def names(self, name: str) -> pa.DictionaryArray:
        """Read a column of few distinct names; its dictionary is unordered."""
        chunks = [batch[name].dictionary_encode() for batch in self._rows.batches([name])]
        kind = pa.dictionary(pa.int32(), _TEXT)
        return single_array(pa.chunked_array(chunks, kind).unify_dictionaries())

    def with_chains(self, sessions: pa.Array) -> pa.Table:
        """Return these and all others of their chains, in the column session_id."""
        own = self._linked_of(sessions)
        more = self.links.whole_chains(own) - set(own)
        added = pa.array(sorted(more), _TEXT)
        return pa.table({"session_id": pa.chunked_array([sessions, added], _TEXT)})

    def consents(self, numbers: Numbers) -> list[str]:
        """Return effective consents of sessions in read portions."""
        return [self._words[word] for word in self._spoken[numbers].tolist()]

    def consent(self, session: str) -> str:
        number = bisect_left(self.ids, session, key=lambda name: name.as_py())
        if number == len(self.ids) or self.ids[number].as_py() != session:
            return CONSENT_UNKNOWN
        return self._words[int(self._spoken[number])]

    def profiles(self) -> Iterator[SessionProfile]:
        for rows in self._rows.batches():
            yield from SessionFacts(rows, self.links).profiles.values()

    def portions(self) -> Iterator[Portion]:
        linked = pa.array(self._linked, _TEXT)
        first, found = 0, [self._rows.schema.empty_table()]
        numbers: list[Numbers] = [np.empty(0, np.int64)]
        if self._linked:
            for rows in self._rows.batches():
                mask = pc.is_in(rows["session_id"], value_set=linked)
                found.append(pa.Table.from_batches([rows.filter(mask)]))
                numbers.append(first + np.flatnonzero(mask.to_numpy(zero_copy_only=False)))
                first += rows.num_rows
            # Decisions on sessions outside the lake spread too.
            yield self._portion(pa.concat_tables(found), np.concatenate(numbers), self._linked)
        first = 0
        for rows in self._rows.batches():
            mask = pc.invert(pc.is_in(rows["session_id"], value_set=linked))
            own = pa.Table.from_batches([rows.filter(mask)])
            at = first + np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            yield self._portion(own, at, own["session_id"].to_pylist())
            first += rows.num_rows

    def _portion(self, rows: pa.Table, at: Numbers, named: Collection[str]) -> Portion:
        facts = SessionFacts(rows, self.links, self._decisions.of(named))
        for word in sorted({*facts.consents.values()} - {*self._words}):
            self._words.append(word)
        words = {word: place for place, word in enumerate(self._words)}
        self._spoken[at] = [words[facts.consents[session]] for session in facts.profiles]
        return facts, at

    def _linked_of(self, sessions: pa.ChunkedArray | pa.Array) -> list[str]:
        own: list[str] = sessions.filter(
            pc.is_in(sessions, value_set=self.links.linked)
        ).to_pylist()
        return own


def portions_of(rows: pa.Table, starts: Numbers) -> Iterable[tuple[int, int]]:
    """Cut rows into portions of about ROWS_AT_ONCE at some of these starts."""
    at: int = 0
    while at < rows.num_rows:
        place = int(np.searchsorted(starts, at + ROWS_AT_ONCE))
        end = int(starts[place]) if place < len(starts) else rows.num_rows
        yield at, end
        at = end
