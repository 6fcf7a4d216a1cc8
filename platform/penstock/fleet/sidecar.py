"""The sidecar: what a channel points at is fetched, verified, loaded and reported."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.fleet.copies import Copies
from penstock.fleet.engine import (
    LoadedCheckpoint,
    SidecarMemory,
    read_memory,
    run_command,
    write_memory,
)
from penstock.fleet.errors import CopyMismatch, LoadFailed
from penstock.fleet.fleet_status import PartName, PartTarget, StandingAnswer, say_standing
from penstock.fleet.registry_source import ChainLink, RegistrySource, Reporter
from penstock.fleet.replicas import Report
from penstock.fleet.settings import FleetSettings
from penstock.settings import ENVIRONMENT_PREFIX, Settings

_JOIN_SECONDS_MAX = 0.5
#: How often an engine is asked whether it still has what was loaded.
CHECK_SECONDS = 30.0
#: The longest pause before a checkpoint that was not loaded is tried again.
RETRY_SECONDS_MAX = 300.0
#: Pauses are doubled so often; beyond it floats overflow.
_DOUBLINGS_MAX = 60
_NOTHING_YET = "the channel is at no checkpoint yet"


@dataclass(frozen=True, kw_only=True)
class SidecarPlan:
    """The order to a sidecar."""

    channel: str
    part: PartName
    replica: str
    directory: Path
    execute: str
    #: Asks the engine whether it still has what was loaded; nobody asks without it.
    check: str | None = None
    #: Load what the channel is at now, once, and end.
    once: bool = False
    #: The engine has what was loaded last, also before this process.
    assume_loaded: bool = False
    #: The pause before a checkpoint that was not loaded is tried again; each further one is twice
    #: as long.
    retry_seconds: float = 2.0


#: Takes something that happened: its kind, a sentence, and the facts.
TellEvent = Callable[[str, str, dict[str, Any]], None]


class Superseded(Exception):
    """The channel is at something else by now, or the sidecar is to end."""


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
        self._run = partial(
            run_command,
            seconds_max=settings.room(FleetSettings).follow_command_seconds_max,
            lock=lock,
            given_up=lambda: self._ended,
        )
        self._tell = tell
        self._copies = Copies(plan.directory, settings)
        self._memory = read_memory(plan.directory)
        #: The checkpoint that the engine has; None where nobody knows.
        self._loaded = self._memory.loaded if plan.assume_loaded else None
        self._target: PartTarget | None = None
        #: The digest that could not be loaded, how often in a row, and when it is tried again.
        self._failed: str | None = None
        self._failures = 0
        self._retry_s = 0.0
        self._check_s = time.monotonic()
        self._trouble: BaseException | None = None
        #: A queue, since a signal may put into one whatever the thread does.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._said = Report(
            replica=plan.replica,
            part=plan.part,
            state="waiting",
            sidecar=self._memory.sidecar,
            loaded=self._loaded.checkpoint if self._loaded else None,
            digest=self._loaded.digest if self._loaded else None,
        )
        self._reporter = Reporter(
            source,
            self._said,
            every_s=settings.room(FleetSettings).replica_report_seconds,
            on_standing=self._tell_standing,
            on_trouble=lambda why: tell("unreported", f"the report was not taken: {why}", {}),
        )

    def end_soon(self) -> None:
        """May be called from a signal."""
        self._ended = True
        self._news.put(None)

    def run(self) -> bool:
        """Until it is told to end, or once; whether the engine has what the channel is at. Raises
        ChannelUnknown, AnswerUnusable, InvalidInput; once also what kept it from loading."""
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
        except PenstockError as error:
            self._trouble = error
        except BaseException as error:
            self._trouble = error
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
        self._tell("ended", "the sidecar ends; the engine is left as it is", {})
        return True

    def _step(self, target: PartTarget | None) -> None:
        """Do what has to be done next, or wait."""
        if target is None:
            self._wait(None)
        elif target.digest is None:
            if self._said.version != target.version:
                self._tell("waiting", _NOTHING_YET, {"version": target.version})
            self._say(state="waiting", wanted=None, version=target.version)
            self._wait(None)
        elif self._has(target):
            self._stay(target)
        else:
            self._try_to_load(target)

    def _run_once(self, target: PartTarget) -> bool:
        if target.digest is None:
            self._say(state="waiting", version=target.version)
            self._tell("waiting", _NOTHING_YET, {"version": target.version})
            return False
        if self._has(target):
            self._say_loaded(target)
            return True
        try:
            self._load(target)
        except Superseded:
            return False
        except PenstockError as error:
            self._say_failed(target, error)
            raise
        return True

    def _has(self, target: PartTarget) -> bool:
        return self._loaded is not None and self._loaded.digest == target.digest

    def _stay(self, target: PartTarget) -> None:
        self._failures = 0
        if self._said.version != target.version or self._said.state != "loaded":
            self._say_loaded(target)
        if self._plan.check is None:
            self._wait(None)
        elif time.monotonic() < self._check_s:
            self._wait(self._check_s)
        else:
            self._check(self._plan.check, target)

    def _check(self, command: str, target: PartTarget) -> None:
        """An engine that was restarted has what it was started with."""
        loaded = self._loaded
        assert loaded is not None
        had = PartTarget(loaded.version, loaded.checkpoint, loaded.digest)
        end = self._run(command, self._facts(had, _links(loaded)))
        self._check_s = time.monotonic() + CHECK_SECONDS
        if end.how and not end.given_up:
            self._forget()
            text = f"the engine has not {target.checkpoint} any more: {end.output}"
            self._tell("lost", text, _fields(target))

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
                text = f"{target.checkpoint} is wanted no more, since the channel changed"
                self._tell("superseded", text, _fields(target))
        except PenstockError as error:
            self._failed = target.digest
            self._failures += 1
            pause_s = self._pause_s()
            self._retry_s = time.monotonic() + pause_s
            problem = self._say_failed(target, error)
            text = f"{problem} It is tried again in {pause_s:g} s."
            facts = {"problem": problem, "again_in_s": pause_s}
            self._tell("failed", text, _fields(target) | facts)

    def _pause_s(self) -> float:
        doublings = min(self._failures - 1, _DOUBLINGS_MAX)
        return min(RETRY_SECONDS_MAX, self._plan.retry_seconds * 2.0**doublings)

    def _wait(self, until_s: float | None) -> None:
        """Until something happens, or that moment."""
        within = max(0.0, until_s - time.monotonic()) if until_s is not None else None
        with suppress(Empty):
            self._news.get(timeout=within)

    # Loading

    def _load(self, target: PartTarget) -> None:
        """Raises Superseded, and a PenstockError where it could not be loaded."""
        assert target.checkpoint is not None
        problem = self._said.problem if self._failures else None
        self._say(
            state="fetching", wanted=target.checkpoint, version=target.version, problem=problem
        )
        chain = self._source.chain(target.checkpoint)
        if chain[-1].digest != target.digest:
            digests = {"found": chain[-1].digest, "digest": target.digest}
            raise CopyMismatch(checkpoint=target.checkpoint, uri=chain[-1].uri, **digests)
        self._copies.keep([*chain, *(_links(self._loaded) if self._loaded else ())])
        for link in chain:
            self._fetch(link, target)
        self._refuse_superseded(target)
        self._say(state="loading")
        self._tell("loading", f"loading {target.checkpoint}", _fields(target))
        facts = self._facts(target, chain)
        self._forget()
        began_s = time.monotonic()
        end = self._run(self._plan.execute, facts)
        if end.given_up:
            raise Superseded
        if end.how:
            raise LoadFailed(checkpoint=target.checkpoint, how=end.how, output=end.output)
        self._loaded = LoadedCheckpoint(
            target.checkpoint, chain[-1].digest, target.version, [link.digest for link in chain]
        )
        self._remember()
        self._say_loaded(target, seconds=round(time.monotonic() - began_s, 3))
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
        damaged = "; the copy that was there was damaged" if copy.damaged else ""
        text = f"fetched {link.name} from {link.uri}, {copy.bytes} bytes, verified{damaged}"
        self._tell("fetched", text, facts)

    def _refuse_superseded(self, target: PartTarget) -> None:
        """Raises Superseded."""
        newest = self._target
        if self._ended or (newest is not None and newest.digest != target.digest):
            raise Superseded

    def _facts(self, target: PartTarget, chain: Sequence[ChainLink]) -> dict[str, str]:
        """The variables of the command."""
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

    def _forget(self) -> None:
        """From here on nobody knows what the engine has."""
        self._loaded = None
        self._remember()

    def _remember(self) -> None:
        write_memory(self._plan.directory, SidecarMemory(self._memory.sidecar, self._loaded))

    # Reporting

    def _say(self, **changed: Any) -> None:
        loaded = self._loaded
        self._said = replace(
            self._said,
            **changed,
            loaded=loaded.checkpoint if loaded is not None else None,
            digest=loaded.digest if loaded is not None else None,
        )
        self._reporter.say(self._said)

    def _say_loaded(self, target: PartTarget, **facts: Any) -> None:
        is_news = self._said.state != "loaded" or self._said.wanted != target.checkpoint
        self._say(state="loaded", problem=None, wanted=target.checkpoint, version=target.version)
        if is_news:
            self._tell("loaded", f"loaded {target.checkpoint}", _fields(target) | facts)

    def _say_failed(self, target: PartTarget, error: PenstockError) -> str:
        """The problem as it was reported."""
        problem = " ".join(str(error).split())
        self._say(state="failed", problem=problem, wanted=target.checkpoint, version=target.version)
        return problem

    def _tell_standing(self, part: StandingAnswer) -> None:
        facts = {"loaded": part.loaded, "wanted": part.wanted, "replicas": part.replicas}
        text = say_standing(self._plan.channel, part)
        self._tell("mixed" if part.mixed else "whole", text, facts)


def _links(loaded: LoadedCheckpoint) -> list[ChainLink]:
    """As far as it matters to find their copies: the registry may be away."""
    return [ChainLink(loaded.checkpoint, digest, "", "", None) for digest in loaded.chain]


def _fields(target: PartTarget) -> dict[str, Any]:
    return msgspec.to_builtins(target)  # type: ignore[no-any-return]
