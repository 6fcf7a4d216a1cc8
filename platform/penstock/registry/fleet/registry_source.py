"""The registry as a sidecar sees it: over HTTP or in the database. Also the sidecar's reports."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.http.client import Tell, service_at
from penstock.backends.terminal.options import actor
from penstock.core.endpoint import Caller, Client
from penstock.core.errors import InvalidInput, PenstockError, one_line
from penstock.core.files import sha256_digest
from penstock.lake.client import LocalClient, RemoteClient
from penstock.lake.lake import Lake
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel_watcher import channel_answers
from penstock.registry.channels.endpoints import SHOW_CHANNEL, ChannelRequest
from penstock.registry.checkpoints.checkpoint import LineageBroken, check_name
from penstock.registry.checkpoints.endpoints import SHOW_CHECKPOINT, CheckpointRequest
from penstock.registry.fleet.fleet_status import PartStatus, PartTarget, describe_part, part_target
from penstock.registry.fleet.replicas import REPORT_REPLICA, Report

_ANSWER_SECONDS_MAX = 15.0
_OUTAGE_PAUSE_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_LEAVE_SECONDS_MAX = 5.0
_CHECKPOINT = "The name of a checkpoint"


class ChainLink(msgspec.Struct, frozen=True):
    name: str
    digest: str
    uri: str
    form: str
    parent: str | None

    def __post_init__(self) -> None:
        sha256_digest(self.digest)


@dataclass
class RegistrySource:
    """The registry, for one part of a channel. Raises InvalidInput for an invalid answer."""

    asking: Client
    #: Reports from another thread.
    reporting: Client
    channel: str
    part: str
    answers: Callable[[Tell, threading.Event], Iterator[ChannelState]]
    cut: Callable[[], None] = lambda: None
    _closed: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """End all waiting for changes, from any thread."""
        self._closed.set()
        self.cut()

    def target(self) -> PartTarget:
        return self._target_of(self.asking.call(SHOW_CHANNEL, ChannelRequest(name=self.channel)))

    def targets(self, tell: Tell) -> Iterator[PartTarget]:
        """Yield the target at each change until `close`. Outages are reported and outlasted."""
        known: int | None = None
        for answer in self.answers(tell, self._closed):
            if answer.version != known:
                known = answer.version
                yield self._target_of(answer)

    def chain(self, checkpoint: str) -> Sequence[ChainLink]:
        """The checkpoint and what it is a delta on, the whole one first. Raises CheckpointUnknown,
        LineageBroken."""
        chain: list[ChainLink] = []
        while not chain or chain[-1].form == "delta":
            needed = chain[-1].parent if chain else checkpoint
            if needed is None or needed in {link.name for link in chain}:
                raise LineageBroken(name=checkpoint, why="none of its ancestors is whole")
            answer = self.asking.call(SHOW_CHECKPOINT, CheckpointRequest(name=needed))
            name = check_name(_CHECKPOINT, answer.name)
            chain.append(ChainLink(name, answer.digest, answer.uri, answer.form, answer.parent))
        return chain[::-1]

    def report(self, report: Report) -> Sequence[PartStatus]:
        return self.reporting.call(REPORT_REPLICA, report).parts

    def _target_of(self, answer: ChannelState) -> PartTarget:
        target = part_target(answer, self.part)
        if target.checkpoint is not None:
            check_name(_CHECKPOINT, target.checkpoint)
        if target.digest is not None:
            sha256_digest(target.digest)
        return target


def service_source(url: str, channel: str, part: str) -> RegistrySource:
    asking, reporting = (RemoteClient(service_at(url, _ANSWER_SECONDS_MAX)) for _ in range(2))
    waiting = service_at(url)

    def answers(tell: Tell, closed: threading.Event) -> Iterator[ChannelState]:
        for answer in channel_answers(waiting, channel, None, tell, closed):
            try:
                yield msgspec.convert(answer, ChannelState)
            except msgspec.ValidationError as error:
                raise InvalidInput(what=f"What {url} answers", why=str(error)) from error

    return RegistrySource(asking, reporting, channel, part, answers, waiting.cut)


def lake_source(lake: Lake, tenant: str, channel: str, part: str) -> RegistrySource:
    client = LocalClient(lake, Caller(tenant, actor(None), is_local=True))
    return RegistrySource(client, client, channel, part, partial(_looks, client, channel))


def _looks(
    client: Client, channel: str, tell: Tell, closed: threading.Event
) -> Iterator[ChannelState]:
    pause_s = 0.0
    while not closed.wait(pause_s):
        pause_s = _LOOK_SECONDS
        try:
            answer = client.call(SHOW_CHANNEL, ChannelRequest(name=channel))
        except DatabaseUnreachable as error:
            tell(f"{error} Retrying.")
            pause_s = _OUTAGE_PAUSE_SECONDS
            continue
        yield answer


TellEvent = Callable[[str, str, dict[str, Any]], None]


@dataclass
class Reporter:
    """Reports from its own thread, so that an outage of the registry delays no loading."""

    source: RegistrySource
    channel: str
    newest: Report
    every_s: float
    tell: TellEvent
    _ended: bool = False
    _in_trouble: bool = False
    _was_mixed: bool | None = None

    def __post_init__(self) -> None:
        self._news: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say(self, report: Report) -> None:
        self.newest = report
        self._news.put(None)

    def stop(self, *, leave: bool) -> None:
        """Send the last report, or that the replica leaves the fleet."""
        if leave:
            self.newest = replace(self.newest, state="left")
        self._ended = True
        self._news.put(None)
        self._thread.join(_LEAVE_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            ended = self._ended
            self._report(self.newest)
            if ended:
                return
            try:
                self._news.get(timeout=self.every_s)
                while True:
                    self._news.get_nowait()
            except Empty:
                continue

    def _report(self, report: Report) -> None:
        try:
            parts = self.source.report(report)
        except PenstockError as error:
            if not self._in_trouble:
                self.tell("unreported", f"the report failed: {one_line(error)}", {})
            self._in_trouble = True
            return
        self._in_trouble = False
        for part in parts:
            if part.part != report.part or report.state == "left":
                continue
            # A rollout is reported once as mixed and once as whole. Other states are no news.
            if (part.mixed or part.whole) and part.mixed is not self._was_mixed:
                self._was_mixed = part.mixed
                facts = {"loaded": part.loaded, "wanted": part.wanted, "replicas": part.replicas}
                kind = "mixed" if part.mixed else "whole"
                self.tell(kind, describe_part(self.channel, part), facts)
