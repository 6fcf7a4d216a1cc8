"""Import of files of events, without HTTP but through the same log and writer."""

import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.backends.audit.entry import OPERATOR
from penstock.backends.eventlog.log import OffsetBounds
from penstock.backends.http.client import ServiceClient
from penstock.backends.http.login import login_path
from penstock.backends.terminal.output import say
from penstock.core.clock import SystemClock
from penstock.core.endpoint import Client
from penstock.core.errors import Backlogged, InvalidInput, one_line
from penstock.core.lake_keys import SecretSeal
from penstock.core.metrics import Metrics
from penstock.core.settings import load_settings
from penstock.events.bodies import split_body
from penstock.events.redaction import SourceRule
from penstock.events.redaction.line_redaction import LineRedactor
from penstock.ingest.decompression import BodyUnreadable
from penstock.ingest.event_files import EventFile, read_bodies
from penstock.ingest.gateway import Acceptance, Acceptor
from penstock.ingest.partition_writer import WriterParts
from penstock.ingest.settings import IngestSettings
from penstock.ingest.writer import Writer, wait_while
from penstock.lake.catalog import read_next_offsets
from penstock.lake.client import LocalClient, RemoteClient
from penstock.lake.lake import Lake
from penstock.lake.query.fresh_events import first_frame_of, frame_decoder, start_of
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.upkeep.merges import summarise_new
from penstock.lake.upkeep.rounds import upkeep_lease

#: How long a running server may take to make room in the log.
_ROOM_SECONDS_MAX = 120
#: How long storing may make no progress, beyond the age of a due flush.
_STORE_SECONDS_MAX = 10


@dataclass
class ImportSummary:
    """The result of an import. Until a server has stored the events, the number of new ones is
    unknown."""

    files: int = 0
    accepted: int = 0
    rejected: int = 0
    stored: int = 0
    duplicate: int = 0
    by_server: bool = False
    waiting: bool = False
    #: Unknown keys of accepted events, with the similar known ones.
    near_misses: dict[str, str] = field(default_factory=dict)
    #: Matches of each redaction rule.
    redacted: Counter[str] = field(default_factory=Counter)

    def count_redactions(self, matches: Counter[SourceRule]) -> None:
        for (_, rule), count in matches.items():
            self.redacted[rule] += count


def event_importer(client: Client) -> "EventImporter":
    if isinstance(client, LocalClient):
        return FileImporter(client.lake, client.caller.tenant, by=client.caller.actor)
    assert isinstance(client, RemoteClient)
    return ServiceImporter(client.service, own_redactor())


class EventImporter(ABC):
    def __init__(self) -> None:
        self.summary = ImportSummary()

    def take(self, file: EventFile) -> Iterator[tuple[int, int]]:
        """Import a file; yields how far it was read, and its size."""
        first_line = 1
        for body in read_bodies(file):
            try:
                self.take_body(body.content, first_line, ndjson=not body.is_array)
            except BodyUnreadable as error:
                why = str(error.facts["why"])
                raise InvalidInput(what=f"The file {file.path}", why=why) from error
            first_line += body.content.count(b"\n")
            yield body.read, body.size
        self.summary.files += 1

    @abstractmethod
    def take_body(self, content: bytes, first_line: int = 1, *, ndjson: bool = True) -> None: ...

    @abstractmethod
    def finish(self) -> ImportSummary: ...


class ServiceImporter(EventImporter):
    """Sends events to a service, redacted before they leave the machine."""

    def __init__(self, service: ServiceClient, redactor: LineRedactor) -> None:
        super().__init__()
        self._service = service
        self._redactor = redactor
        self.summary.by_server = True

    def take_body(self, content: bytes, first_line: int = 1, *, ndjson: bool = True) -> None:
        """Send a body. Also raises ServerUnreachable, and refusals of the service."""
        lines = [
            line
            for _, chunk in split_body([content], len(content), ndjson=ndjson)
            for line in chunk
        ]
        redacted = self._redactor.redact(lines, "", sys.maxsize)
        self.summary.count_redactions(redacted.matches)
        self.summary.rejected += len(redacted.refused)
        content = b"\n".join(redacted.lines)
        try:
            kind = "application/x-ndjson"
            answer = self._service.send_events(content, tell=say, Content_Type=kind)
        except BodyUnreadable as error:
            raise BodyUnreadable(why=one_line(error)) from error
        self.summary.accepted += answer["accepted"]
        self.summary.rejected += len(answer["rejected"])
        for warning in answer.get("warnings", ()):
            self.summary.near_misses[warning["key"]] = warning["known"]

    def finish(self) -> ImportSummary:
        self.summary.waiting = self.summary.accepted > 0
        return self.summary


class FileImporter(EventImporter):
    """Writes files into the log of a lake on this machine."""

    def __init__(self, lake: Lake, tenant: str, *, by: str = OPERATOR) -> None:
        super().__init__()
        self._lake, self._by = lake, by
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._tenant = tenant
        self._acceptor = Acceptor(tenant, lake.settings, lake.log, lake.redactor)
        self._writer = Writer(WriterParts(lake, self._clock, self._metrics))
        #: Arrival times, which identify these events after a running server stored them.
        self._received_us: list[int] = []

    def take_body(self, content: bytes, first_line: int = 1, *, ndjson: bool = True) -> None:
        now_us = self._clock.now_us()
        self._received_us.append(now_us)
        for piece in self._acceptor.accept([content], now_us, first_line, ndjson=ndjson):
            self._append(piece)

    def finish(self) -> ImportSummary:
        """Store the events of the log, or wait for a running server that does."""
        summary, metrics = self.summary, self._metrics
        self._lake.flush_tallies()
        summary.by_server = not self._writer.drain()
        if summary.by_server:
            patience_s = (
                self._lake.settings.room(IngestSettings).flush_seconds_max + _STORE_SECONDS_MAX
            )
            summary.waiting = not wait_until_stored(self._lake, self._tenant, patience_s)
            if not summary.waiting:
                summary.stored = self._stored_by_server()
                summary.duplicate = summary.accepted - summary.stored
            return summary
        with upkeep_lease(self._lake) as mine:  # nobody may serve, and do it later
            if mine:
                summarise_new(self._lake, metrics)
        summary.stored = int(metrics.value("events_stored_total", tenant=self._tenant))
        summary.duplicate = int(metrics.value("events_duplicate_total", tenant=self._tenant))
        return summary

    def _stored_by_server(self) -> int:
        """Count new events by arrival time: duplicates keep their first one."""
        if not self._received_us:
            return 0
        first, last = self._received_us[0], self._received_us[-1]
        sql = (
            "select count(*) as n from events"
            f" where received_at between make_timestamptz({first}) and make_timestamptz({last})"
            f" and epoch_us(received_at) in ({', '.join(map(str, self._received_us))})"
        )
        query = self._lake.query(OwnQuery(sql, frozenset({"events"})), tenant=self._tenant)
        return int(query.arrow()["n"][0].as_py())

    def _append(self, piece: Acceptance) -> None:
        waited_s, drained = 0, False
        while piece.values:
            try:
                self._lake.log.append(piece.values)
                break
            except Backlogged as full:
                if drained or waited_s > _ROOM_SECONDS_MAX:
                    raise  # storing freed no room
                drained = self._writer.drain()
                if not drained:  # a running server stores them
                    time.sleep(full.retry_after_s)
                    waited_s += full.retry_after_s
        self.summary.count_redactions(piece.redactions)
        self._lake.redaction_tally.count(self._tenant, self._received_us[-1], piece.redactions)
        accepted, rejected = piece.accepted, len(piece.rejections)
        self.summary.accepted += accepted
        self.summary.rejected += rejected
        self._lake.tally.count(
            self._tenant, self._by, "ingest", accepted=accepted, rejected=rejected
        )
        self.summary.near_misses |= {miss.key: miss.known for miss in piece.near_misses.counts}


def wait_until_stored(lake: Lake, tenant: str, patience_s: float) -> bool:
    """Wait until another process stored the tenant's events that are in the log now. False after
    this long without progress."""
    ends = lake.log.ends()
    return wait_while(lambda: _unstored(lake, tenant, ends), patience_s)


def _unstored(lake: Lake, tenant: str, ends: list[int]) -> list[int]:
    """The end of each partition that holds unstored events of the tenant."""
    lake.log.refresh()
    arrivals = frame_decoder(lake)
    with lake.database.read() as connection:
        covered = read_next_offsets(connection, tenant)
    left = []
    for at, end in enumerate(ends):
        beyond = OffsetBounds(start_of(lake.log, at, covered, tenant), end)
        left.append(end - min(first_frame_of(lake.log, arrivals, tenant, at, beyond), end))
    return left if any(left) else []


#: The file of the redaction key, next to the login.
_KEY_NAME = "redaction.key"


def own_redactor() -> LineRedactor:
    """A redactor with the local settings and this user's key. Raises RedactionRulesInvalid."""
    settings = load_settings()
    seal = SecretSeal(login_path().with_name(_KEY_NAME))
    if settings.secret_key_file:
        seal = SecretSeal.of(settings)
    return LineRedactor.of(settings, lambda: seal.key_for("redaction"))
