"""OTLP in files: requests as JSON, one a document or one a line, as the collector's file exporter
writes them. What spans and records are as events is that of `POST /v1/traces` and `/v1/logs`.
"""

import re
from collections.abc import Iterator
from itertools import chain

from penstock.ingest.otlp.conversion import TelemetryBatch
from penstock.ingest.otlp.json_form import logs_of, spans_of
from penstock.ingest.otlp.log_batch import FullSessions
from penstock_jobs.importers.importer import ImportedEvent, Importer, RecentEntries
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import is_export, rows_of

_BEGINS = re.compile(rb'\s*\[?\s*\{\s*"resource(?:Spans|Logs)"\s*:')


class OtlpImporter(Importer):
    name = "otlp"

    def recognises(self, candidate: Candidate) -> bool:
        return is_export(candidate) and bool(_BEGINS.match(candidate.beginning))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        full = FullSessions()
        seen: RecentEntries[bool] = RecentEntries()
        for where, row in rows_of(source, notes):
            batch = TelemetryBatch(source.changed_us(), full_sessions=full)
            for converted in chain(batch.spans(spans_of(row)), batch.logs(logs_of(row))):
                if converted.why is not None:
                    example = f"{where}: {converted.why}"
                    notes.skip("span or log record that cannot be read", example)
                elif not converted.is_known:
                    notes.skip("span or log record of no agent", where)
                for event in converted.events:
                    key = f"{event['session_id']}\0{event['event_id']}"
                    if seen.get(key) is None:
                        seen[key] = True
                        yield ImportedEvent(**event)


IMPORTERS = (OtlpImporter(),)
