"""The registry as a sidecar asks it, over HTTP or in the database, and reports to it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from penstock.channels.channel import ChannelAnswer, channel_state
from penstock.channels.channel_watcher import channel_answers, channel_path
from penstock.checkpoints.checkpoint import LineageBroken, check_name
from penstock.checkpoints.registration import ancestors, check_chain, find_in
from penstock.database.engine import Database
from penstock.database.errors import DatabaseUnreachable
from penstock.errors import InvalidInput, PenstockError, one_line
from penstock.fleet import replicas
from penstock.fleet.fleet_status import PartTarget, StandingAnswer, part_target, say_standing
from penstock.fleet.replicas import LEFT, Report
from penstock.http.client import Tell, service_at
from penstock.http.errors import AnswerUnusable
from penstock.safe_names import sha256_digest
from penstock.settings import Settings

_ANSWER_SECONDS_MAX = 15.0
_OUTAGE_PAUSE_SECONDS = 5.0
#: Loading takes seconds, and looking costs a processor that the engine could use.
_LOOK_SECONDS = 0.1
_LEAVE_SECONDS_MAX = 5.0
_CHECKPOINT = "The name of a checkpoint"


@dataclass(frozen=True)
class ChainLink:
    """A checkpoint of a chain of deltas, as it is fetched."""

    name: str
    digest: str
    uri: str
    form: str
    parent: str | None

    def __post_init__(self) -> None:
        sha256_digest(self.digest)


class ServiceSource:
    """The registry over HTTP, for a part of one channel."""

    def __init__(self, url: str, channel: str, part: str) -> None:
        self._url = url
        self._channel = channel
        self._part = part
        self._asking = service_at(url, _ANSWER_SECONDS_MAX)
        self._reporting = service_at(url, _ANSWER_SECONDS_MAX)
        self._waiting = service_at(url)
        self._closed = threading.Event()

    def close(self) -> None:
        """From any thread: nobody waits for a change any longer."""
        self._closed.set()
        self._waiting.cut()

    def target(self) -> PartTarget:
        """The target now. Raises ChannelUnknown, ServerUnreachable, AnswerUnusable,
        DatabaseUnreachable."""
        return self._target_of(self._asking.ask(channel_path(self._channel), "version"))

    def targets(self, tell: Tell) -> Iterator[PartTarget]:
        """The target now, and then the newest whenever the channel changed, until `close`;
        outages are told and outlasted."""
        known: int | None = None
        for answer in channel_answers(self._waiting, self._channel, None, tell, self._closed):
            if answer["version"] != known:
                known = answer["version"]
                yield self._target_of(answer)

    def chain(self, name: str) -> Sequence[ChainLink]:
        """A checkpoint, after all that it is a delta on: the first one is whole. Raises
        CheckpointUnknown, LineageBroken and what `target` raises."""
        chain: list[ChainLink] = []
        while not chain or chain[-1].form == "delta":
            needed = chain[-1].parent if chain else name
            if needed is None or needed in {link.name for link in chain}:
                raise LineageBroken(name=name, why="none of its ancestors is whole")
            answer = self._asking.ask(f"checkpoints/{quote(needed, safe='')}", "digest")
            with self._unusable():
                link = msgspec.convert(answer, ChainLink)
                check_name(_CHECKPOINT, link.name)
            chain.append(link)
        return chain[::-1]

    def report(self, report: Report) -> Sequence[StandingAnswer]:
        """The standings of the fleet then. Raises ReplicaTaken and what `target` raises."""
        path = f"{channel_path(self._channel)}/replicas"
        answer = self._reporting.ask(path, "parts", report)
        with self._unusable():
            return msgspec.convert(answer["parts"], list[StandingAnswer])

    def _target_of(self, answer: dict[str, Any]) -> PartTarget:
        with self._unusable():
            target = part_target(msgspec.convert(answer, ChannelAnswer), self._part)
            if target.checkpoint is not None:
                check_name(_CHECKPOINT, target.checkpoint)
            if target.digest is not None:
                sha256_digest(target.digest)
            return target

    @contextmanager
    def _unusable(self) -> Iterator[None]:
        """What an answer says becomes variables of a command, and names of folders. Raises
        AnswerUnusable."""
        try:
            yield
        except (msgspec.ValidationError, InvalidInput) as error:
            raise AnswerUnusable(url=self._url, status=200, why=one_line(error)) from error


class DatabaseSource:
    """The registry in the database, for a part of one channel."""

    def __init__(
        self, database: Database, settings: Settings, tenant: str, channel: str, part: str
    ) -> None:
        self._database = database
        self._settings = settings
        self._place = (tenant, channel)
        self._part = part
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    def target(self) -> PartTarget:
        return part_target(channel_state(self._database, *self._place), self._part)

    def targets(self, tell: Tell) -> Iterator[PartTarget]:
        known: int | None = None
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            try:
                target = self.target()
            except DatabaseUnreachable as error:
                tell(f"{error} It is tried again.")
                pause_s = _OUTAGE_PAUSE_SECONDS
                continue
            pause_s = _LOOK_SECONDS
            if target.version != known:
                known = target.version
                yield target

    def chain(self, name: str) -> Sequence[ChainLink]:
        with self._database.read() as connection:
            checkpoint = find_in(connection, self._place[0], name)
            check_chain(connection, checkpoint)
            chain = [checkpoint]
            if checkpoint.form == "delta":
                chain += ancestors(connection, checkpoint)
        whole = next(place for place, link in enumerate(chain) if link.form == "whole")
        links = chain[whole::-1]
        return [msgspec.convert(link, ChainLink, from_attributes=True) for link in links]

    def report(self, report: Report) -> Sequence[StandingAnswer]:
        return replicas.record_report(self._database, self._settings, *self._place, report)


RegistrySource = ServiceSource | DatabaseSource
#: Takes an event: its kind, a sentence, and the facts.
TellEvent = Callable[[str, str, dict[str, Any]], None]


class Reporter:
    """Reports from a thread of its own, so that an outage of the registry holds up no loading. It
    tells when the replica's part of the fleet becomes mixed or whole, and when reports are no
    longer taken."""

    def __init__(
        self, source: RegistrySource, channel: str, first: Report, every_s: float, tell: TellEvent
    ) -> None:
        self._source = source
        self._channel = channel
        self._newest = first
        self._every_s = every_s
        self._tell = tell
        self._news: SimpleQueue[None] = SimpleQueue()
        self._ended = False
        self._in_trouble = False
        self._was_mixed: bool | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say(self, report: Report) -> None:
        """To be reported at once."""
        self._newest = report
        self._news.put(None)

    def stop(self, *, leave: bool) -> None:
        """Say the last thing, or that the replica leaves the fleet."""
        if leave:
            self._newest = replace(self._newest, state=LEFT)
        self._ended = True
        self._news.put(None)
        self._thread.join(_LEAVE_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            ended = self._ended
            self._report(self._newest)
            if ended:
                return
            try:
                self._news.get(timeout=self._every_s)
                while True:
                    self._news.get_nowait()
            except Empty:
                continue

    def _report(self, report: Report) -> None:
        try:
            parts = self._source.report(report)
        except PenstockError as error:
            if not self._in_trouble:
                self._tell("unreported", f"the report was not taken: {one_line(error)}", {})
            self._in_trouble = True
            return
        self._in_trouble = False
        for part in parts:
            if part.part != report.part or report.state == LEFT:
                continue
            # A fleet that is being rolled out is mixed once and whole once; what is neither, as
            # one that is all behind, is no news.
            if (part.mixed or part.whole) and part.mixed is not self._was_mixed:
                self._was_mixed = part.mixed
                facts = {"loaded": part.loaded, "wanted": part.wanted, "replicas": part.replicas}
                kind = "mixed" if part.mixed else "whole"
                self._tell(kind, say_standing(self._channel, part), facts)
