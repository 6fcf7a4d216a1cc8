"""The sidecar: fetches, verifies, loads and reports the checkpoint of a channel."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.core.errors import PenstockError, one_line
from penstock.core.settings import ENVIRONMENT_PREFIX, Settings
from penstock.registry.fleet import FleetSettings
from penstock.registry.fleet.checkpoint_cache import CheckpointCache, CopyMismatch
from penstock.registry.fleet.engine import (
    LoadedCheckpoint,
    LoadFailed,
    SidecarMemory,
    read_memory,
    run_command,
    write_memory,
)
from penstock.registry.fleet.fleet_status import PartName, PartTarget, State
from penstock.registry.fleet.registry_source import ChainLink, RegistrySource, Reporter, TellEvent
from penstock.registry.fleet.replicas import Report

_JOIN_SECONDS_MAX = 0.5
#: Seconds between two checks that the engine still has its checkpoint.
CHECK_SECONDS = 30.0
#: The longest pause before a failed checkpoint is retried.
RETRY_SECONDS_MAX = 300.0
#: Pauses double at most this often, so that floats do not overflow.
_DOUBLINGS_MAX = 60


class SidecarPlan(msgspec.Struct, frozen=True, kw_only=True):
    channel: str
    part: PartName
    replica: str
    directory: Path
    execute: str
    #: A command that checks whether the engine still has its checkpoint.
    check: str | None = None
    #: Load the present checkpoint, then end.
    once: bool = False
    #: Assume that the engine has its last checkpoint, loaded before this process.
    assume_loaded: bool = False
    #: The pause before the first retry; it doubles with each further one.
    retry_seconds: float = 2.0


class Superseded(Exception):
    """The channel changed meanwhile, or the sidecar is ending."""


class Sidecar:
    """Built and run in one thread."""

    def __init__(
        self,
        plan: SidecarPlan,
        source: RegistrySource,
        settings: Settings,
        *,
        lock: int,
        tell: TellEvent,
    ) -> None:
        self._plan = plan
        self._source = source
        self._ended = False
        room = settings.room(FleetSettings)
        max_s = room.follow_command_seconds_max
        self._run = partial(run_command, seconds_max=max_s, lock=lock, given_up=lambda: self._ended)
        self._tell = tell
        self._copies = CheckpointCache(plan.directory, settings)
        self._memory = read_memory(plan.directory)
        #: The checkpoint of the engine; None if unknown.
        self._loaded = self._memory.loaded if plan.assume_loaded else None
        self._target: PartTarget | None = None
        #: The digest that failed to load, how often in a row, and when it is retried.
        self._failed: str | None = None
        self._failures = 0
        self._retry_s = 0.0
        self._check_s = time.monotonic()
        self._trouble: BaseException | None = None
        #: A queue, because signal handlers may put into it at any time.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._report = Report(
            name=plan.channel,
            replica=plan.replica,
            part=plan.part,
            state="waiting",
            sidecar=self._memory.sidecar,
            loaded=self._loaded.checkpoint if self._loaded else None,
            digest=self._loaded.digest if self._loaded else None,
        )
        report_s = room.replica_report_seconds
        self._reporter = Reporter(source, plan.channel, self._report, report_s, tell)

    def end_soon(self) -> None:
        """End the sidecar; safe in signal handlers."""
        self._ended = True
        self._news.put(None)

    def run(self) -> bool:
        """Run until the end; True if the engine has the channel's checkpoint. Raises
        ChannelUnknown, AnswerUnusable, InvalidInput; with `once` also a failure to load."""
        write_memory(self._plan.directory, self._memory)
        if self._memory.loaded is not None:
            self._copies.keep(_links(self._memory.loaded))
        target = self._source.target() if self._plan.once else None
        self._target = target
        self._reporter.start()
        try:
            return self._run_once(target) if target is not None else self._follow()
        finally:
            self._reporter.stop(leave=not self._plan.once)

    # Following

    def _watch(self) -> None:
        try:
            for target in self._source.targets(lambda why: self._tell("outage", why, {})):
                self._target = target
                self._news.put(None)
        except BaseException as error:
            self._trouble = error
            if not isinstance(error, PenstockError):
                raise
        finally:
            self._news.put(None)

    def _follow(self) -> bool:
        watching = threading.Thread(target=self._watch, name="watch", daemon=True)
        watching.start()
        try:
            while not self._ended:
                if self._trouble is not None:
                    raise self._trouble
                self._step(self._target)
        finally:
            self._source.close()
            watching.join(_JOIN_SECONDS_MAX)
        self._tell("ended", "the sidecar ends; the engine keeps its checkpoint", {})
        return True

    def _step(self, target: PartTarget | None) -> None:
        """Do the next thing, or wait."""
        if target is None:
            self._wait(None)
        elif target.digest is None:
            self._report_waiting(target)
            self._wait(None)
        elif self._has(target):
            self._stay(target)
        else:
            self._try_to_load(target)

    def _run_once(self, target: PartTarget) -> bool:
        if target.digest is None:
            self._report_waiting(target)
            return False
        if self._has(target):
            self._report_loaded(target)
            return True
        try:
            self._load(target)
        except Superseded:
            return False
        except PenstockError as error:
            self._report_failed(target, error)
            raise
        return True

    def _has(self, target: PartTarget) -> bool:
        return self._loaded is not None and self._loaded.digest == target.digest

    def _stay(self, target: PartTarget) -> None:
        self._failures = 0
        if self._report.version != target.version or self._report.state != "loaded":
            self._report_loaded(target)
        if self._plan.check is None:
            self._wait(None)
        elif time.monotonic() < self._check_s:
            self._wait(self._check_s)
        else:
            self._check(self._plan.check, target)

    def _check(self, command: str, target: PartTarget) -> None:
        """Ask the engine. A restarted one has what it was started with."""
        loaded = self._loaded
        assert loaded is not None
        had = PartTarget(loaded.version, loaded.checkpoint, loaded.digest)
        end = self._run(command, self._facts(had, _links(loaded)))
        self._check_s = time.monotonic() + CHECK_SECONDS
        if end.how and not end.given_up:
            self._remember(None)
            text = f"the engine no longer has {target.checkpoint}: {end.output}"
            self._tell_of("lost", target, text)

    def _try_to_load(self, target: PartTarget) -> None:
        if self._failed != target.digest:
            self._failures = 0
        if self._failures and time.monotonic() < self._retry_s:
            self._wait(self._retry_s)
            return
        try:
            self._load(target)
        except Superseded:
            if not self._ended:
                text = f"{target.checkpoint} is no longer wanted: the channel changed"
                self._tell_of("superseded", target, text)
        except PenstockError as error:
            self._failed = target.digest
            doublings = min(self._failures, _DOUBLINGS_MAX)
            self._failures += 1
            pause_s = min(RETRY_SECONDS_MAX, self._plan.retry_seconds * 2.0**doublings)
            self._retry_s = time.monotonic() + pause_s
            problem = self._report_failed(target, error)
            text = f"{problem} Retrying in {pause_s:g} s."
            self._tell_of("failed", target, text, problem=problem, again_in_s=pause_s)

    def _wait(self, until_s: float | None) -> None:
        """Wait for news, or until a time."""
        within = max(0.0, until_s - time.monotonic()) if until_s is not None else None
        with suppress(Empty):
            self._news.get(timeout=within)

    # Loading

    def _load(self, target: PartTarget) -> None:
        assert target.checkpoint is not None
        problem = self._report.problem if self._failures else None
        self._report_state("fetching", target, problem)
        chain = self._source.chain(target.checkpoint)
        if chain[-1].digest != target.digest:
            mismatch = {"found": chain[-1].digest, "digest": target.digest}
            raise CopyMismatch(checkpoint=target.checkpoint, uri=chain[-1].uri, **mismatch)
        self._copies.keep([*chain, *(_links(self._loaded) if self._loaded else ())])
        for link in chain:
            self._fetch(link, target)
        self._refuse_superseded(target)
        self._report_state("loading", target, problem)
        self._tell_of("loading", target, f"loading {target.checkpoint}")
        facts = self._facts(target, chain)
        self._remember(None)
        began_s = time.monotonic()
        end = self._run(self._plan.execute, facts)
        if end.given_up:
            raise Superseded
        if end.how:
            raise LoadFailed(checkpoint=target.checkpoint, how=end.how, output=end.output)
        digests = [link.digest for link in chain]
        self._remember(LoadedCheckpoint(target.checkpoint, digests[-1], target.version, digests))
        self._report_loaded(target, seconds=round(time.monotonic() - began_s, 3))
        self._failures = 0
        self._check_s = time.monotonic() + CHECK_SECONDS
        self._copies.keep(chain)
        for digest in self._copies.remove_old():
            self._tell("removed", f"removed the copy of {digest}", {"digest": digest})

    def _fetch(self, link: ChainLink, target: PartTarget) -> None:
        began_s = time.monotonic()
        copy = self._copies.provide(link, lambda _bytes: self._refuse_superseded(target))
        if not copy.fetched:
            return
        facts = {
            "checkpoint": link.name,
            "digest": link.digest,
            "uri": link.uri,
            "bytes": copy.bytes,
            "damaged": copy.damaged,
            "seconds": round(time.monotonic() - began_s, 3),
        }
        damaged = "; the former copy was damaged" if copy.damaged else ""
        text = f"fetched {link.name} from {link.uri}, {copy.bytes} bytes, verified{damaged}"
        self._tell("fetched", text, facts)

    def _refuse_superseded(self, target: PartTarget) -> None:
        newest = self._target
        if self._ended or (newest is not None and newest.digest != target.digest):
            raise Superseded

    def _facts(self, target: PartTarget, chain: Sequence[ChainLink]) -> dict[str, str]:
        """The environment variables of the command."""
        paths = [str(self._copies.path(link)) for link in chain]
        digests = [link.digest for link in chain]
        loaded = self._loaded
        missing = paths
        if loaded is not None and loaded.digest in digests:
            missing = paths[digests.index(loaded.digest) + 1 :]
        facts = {
            "channel": self._plan.channel,
            "part": self._plan.part,
            "replica": self._plan.replica,
            "version": str(target.version),
            "checkpoint": target.checkpoint or "",
            "digest": target.digest or "",
            "folder": paths[-1],
            "form": "whole" if len(paths) == 1 else "delta",
            "chain": "\n".join(paths),
            "apply": "\n".join(missing),
            "loaded": loaded.checkpoint if loaded is not None else "",
        }
        return {f"{ENVIRONMENT_PREFIX}{name.upper()}": value for name, value in facts.items()}

    def _remember(self, loaded: LoadedCheckpoint | None) -> None:
        """Store what the engine has; None if unknown."""
        self._loaded = loaded
        write_memory(self._plan.directory, SidecarMemory(self._memory.sidecar, loaded))

    # Reporting

    def _report_state(self, state: State, target: PartTarget, problem: str | None = None) -> None:
        loaded = self._loaded
        self._report = replace(
            self._report,
            state=state,
            wanted=target.checkpoint,
            version=target.version,
            loaded=loaded.checkpoint if loaded is not None else None,
            digest=loaded.digest if loaded is not None else None,
            problem=problem,
        )
        self._reporter.say(self._report)

    def _report_waiting(self, target: PartTarget) -> None:
        if self._report.version != target.version:
            text = "the channel has no checkpoint yet"
            self._tell("waiting", text, {"version": target.version})
        self._report_state("waiting", target, self._report.problem)

    def _report_loaded(self, target: PartTarget, **facts: Any) -> None:
        is_news = self._report.state != "loaded" or self._report.wanted != target.checkpoint
        self._report_state("loaded", target)
        if is_news:
            self._tell_of("loaded", target, f"loaded {target.checkpoint}", **facts)

    def _report_failed(self, target: PartTarget, error: PenstockError) -> str:
        """Report a failure; returns its text."""
        problem = one_line(error)
        self._report_state("failed", target, problem)
        return problem

    def _tell_of(self, kind: str, target: PartTarget, text: str, **facts: Any) -> None:
        self._tell(kind, text, msgspec.to_builtins(target) | facts)


def _links(loaded: LoadedCheckpoint) -> list[ChainLink]:
    """Links with only what finds their copies, since the registry may be unreachable."""
    return [ChainLink(loaded.checkpoint, digest, "", "", None) for digest in loaded.chain]
