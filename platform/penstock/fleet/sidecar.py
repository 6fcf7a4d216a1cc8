"""The sidecar: what a channel points at is fetched, verified, loaded and reported. What was
loaded last, it remembers in its folder.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidInput, PenstockError
from penstock.fleet import loading_command
from penstock.fleet.copies import Copies
from penstock.fleet.errors import CopyMismatch, LoadFailed
from penstock.fleet.fleet_status import PartName, Standing, say_standing
from penstock.fleet.registry_source import Piece, Pointing, Source, Target, target_of
from penstock.fleet.replicas import Report
from penstock.fleet.reporter import Reporter
from penstock.fleet.settings import FleetSettings
from penstock.settings import ENVIRONMENT_PREFIX, Settings
from penstock.storage import FileStore

NAME = "state.json"


class Loaded(msgspec.Struct, frozen=True):
    """What the engine has, and the digests of all that this consists of."""

    checkpoint: str
    digest: str
    version: int
    chain: list[str]


class Remembered(msgspec.Struct, frozen=True):
    """`loaded` is null while a command runs, and after one that failed: nobody knows then what the
    engine has."""

    sidecar: str
    loaded: Loaded | None = None


def remembered(directory: Path) -> Remembered:
    """What was written at last; anew where there is nothing, or nothing that can be read."""
    try:
        return msgspec.json.decode((directory / NAME).read_bytes(), type=Remembered)
    except (FileNotFoundError, ValueError):
        return Remembered(secrets.token_hex(8))


def remember(directory: Path, state: Remembered) -> None:
    """All of it, or what was there before. Raises InvalidInput."""
    try:
        with FileStore(directory).create(NAME) as file:
            file.write(msgspec.json.encode(state) + b"\n")
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {directory}", why=why) from error


_JOIN_SECONDS_MAX = 0.5
#: How often an engine is asked whether it still has what was loaded.
CHECK_SECONDS = 30.0
#: The longest pause before a checkpoint that was not loaded is tried again.
RETRY_SECONDS_MAX = 300.0
#: Of pauses: beyond it numbers are larger than they can be.
_DOUBLINGS_MAX = 60


@dataclass(frozen=True, kw_only=True)
class SidecarPlan:
    """What a sidecar was told to do."""

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


#: Something that happened: its kind, a sentence, and the facts.
Tell = Callable[[str, str, dict[str, Any]], None]


class Unwanted(Exception):
    """The channel is at something else by now, or the sidecar is to end."""


class Sidecar:
    """Built and run in one thread."""

    def __init__(
        self, plan: SidecarPlan, source: Source, settings: Settings, *, lock: int, tell: Tell
    ) -> None:
        self._plan = plan
        self._source = source
        self._settings = settings
        self._lock = lock
        self._tell = tell
        self._copies = Copies(plan.directory, settings)
        self._memory = remembered(plan.directory)
        #: What the engine has; None where nobody knows.
        self._loaded: Loaded | None = self._memory.loaded if plan.assume_loaded else None
        self._target: Target | None = None
        #: What could not be loaded, how often in a row, and when it is tried again.
        self._failed: str | None = None
        self._failures = 0
        self._retry_s = 0.0
        self._check_s = time.monotonic()
        self._ended = False
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
            on_standing=self._say_standing,
            on_trouble=lambda why: self._tell("unreported", f"the report was not taken: {why}", {}),
        )

    def end_soon(self) -> None:
        """May be called from a signal."""
        self._ended = True
        self._news.put(None)

    def run(self) -> bool:
        """Until it is told to end, or once; whether the engine has what the channel is at. Raises
        ChannelUnknown, AnswerUnusable, InvalidInput; once also what kept it from loading."""
        remember(self._plan.directory, self._memory)
        if self._memory.loaded is not None:
            self._copies.keep(_kept(self._memory.loaded))
        if self._plan.once:
            self._target = target_of(self._source.pointing(), self._plan.part)
        self._reporter.start()
        try:
            return self._run_once() if self._plan.once else self._follow()
        finally:
            self._reporter.stop(leave=not self._plan.once)

    # Following

    def _watch(self) -> None:
        try:
            for one in self._source.pointings(lambda why: self._tell("outage", why, {})):
                self._point(one)
        except PenstockError as error:
            self._trouble = error
        except BaseException as error:
            self._trouble = error
            raise
        finally:
            self._news.put(None)

    def _point(self, found: Pointing) -> None:
        self._target = target_of(found, self._plan.part)
        self._news.put(None)

    def _follow(self) -> bool:
        watching = threading.Thread(target=self._watch, name="watch", daemon=True)
        watching.start()
        try:
            self._go_on()
        finally:
            self._source.close()
            watching.join(_JOIN_SECONDS_MAX)
        self._tell("ended", "the sidecar ends; the engine is left as it is", {})
        return True

    def _go_on(self) -> None:
        while not self._ended:
            if self._trouble is not None:
                raise self._trouble
            target = self._target
            if target is None:
                self._wait(None)
            elif target.digest is None:
                self._wait_for_promotion(target)
            elif self._has(target):
                self._stay(target)
            else:
                self._try_to_load(target)

    def _run_once(self) -> bool:
        assert self._target is not None
        if self._target.digest is None:
            self._say(state="waiting", version=self._target.version)
            self._tell("waiting", self._nothing_yet(), {"version": self._target.version})
            return False
        if not self._has(self._target):
            try:
                self._load(self._target)
            except Unwanted:
                return False
            except PenstockError as error:
                self._say_failed(self._target, error)
                raise
        else:
            self._say_loaded(self._target)
        return True

    def _wait_for_promotion(self, target: Target) -> None:
        if self._said.version != target.version:
            self._tell("waiting", self._nothing_yet(), {"version": target.version})
        self._say(state="waiting", wanted=None, version=target.version)
        self._wait(None)

    def _nothing_yet(self) -> str:
        return "the channel is at no checkpoint yet"

    def _has(self, target: Target) -> bool:
        return self._loaded is not None and self._loaded.digest == target.digest

    def _stay(self, target: Target) -> None:
        self._failures = 0
        if self._said.version != target.version or self._said.state != "loaded":
            self._say_loaded(target)
        if self._plan.check is None:
            self._wait(None)
        elif time.monotonic() < self._check_s:
            self._wait(self._check_s)
        else:
            self._check(target)

    def _check(self, target: Target) -> None:
        """An engine that was restarted has what it was started with."""
        assert self._plan.check is not None
        assert self._loaded is not None
        had = Target(self._loaded.version, self._loaded.checkpoint, self._loaded.digest)
        found = self._run(self._plan.check, self._facts(had, _kept(self._loaded)))
        self._check_s = time.monotonic() + CHECK_SECONDS
        if found.how and not found.given_up:
            self._forget()
            text = f"the engine has not {target.checkpoint} any more: {found.output}"
            self._tell("lost", text, _named(target))

    def _try_to_load(self, target: Target) -> None:
        if self._failed != target.digest:
            self._failures = 0
        if self._failures and time.monotonic() < self._retry_s:
            self._wait(self._retry_s)
            return
        try:
            self._load(target)
        except Unwanted:
            if not self._ended:
                text = f"{target.checkpoint} is wanted no more, since the channel changed"
                self._tell("superseded", text, _named(target))
        except PenstockError as error:
            self._failed = target.digest
            self._failures += 1
            pause_s = self._pause_s()
            self._retry_s = time.monotonic() + pause_s
            self._say_failed(target, error, pause_s)

    def _pause_s(self) -> float:
        times = 2.0 ** min(self._failures - 1, _DOUBLINGS_MAX)
        return min(RETRY_SECONDS_MAX, self._plan.retry_seconds * times)

    def _wait(self, until_s: float | None) -> None:
        """Until something happens, or that moment."""
        within = max(0.0, until_s - time.monotonic()) if until_s is not None else None
        with suppress(Empty):
            self._news.get(timeout=within)

    # Loading

    def _load(self, target: Target) -> None:
        """Raises Unwanted, and a PenstockError where it could not be loaded."""
        assert target.checkpoint is not None
        problem = self._said.problem if self._failures else None
        named = {"wanted": target.checkpoint, "version": target.version}
        self._say(state="fetching", problem=problem, **named)
        chain = self._source.chain(target.checkpoint)
        if chain[-1].digest != target.digest:
            found = {"uri": chain[-1].uri, "found": chain[-1].digest, "digest": target.digest}
            raise CopyMismatch(checkpoint=target.checkpoint, **found)
        self._copies.keep([*chain, *(_kept(self._loaded) if self._loaded else ())])
        for piece in chain:
            self._take(piece, target)
        self._refuse_unwanted(target)
        self._say(state="loading")
        self._tell("loading", f"loading {target.checkpoint}", _named(target))
        facts = self._facts(target, chain)
        self._forget()
        began_s = time.monotonic()
        found_end = self._run(self._plan.execute, facts)
        if found_end.given_up:
            raise Unwanted
        if found_end.how:
            output = found_end.output
            raise LoadFailed(checkpoint=target.checkpoint, how=found_end.how, output=output)
        digests = [one.digest for one in chain]
        self._loaded = Loaded(target.checkpoint, chain[-1].digest, target.version, digests)
        remember(self._plan.directory, Remembered(self._memory.sidecar, self._loaded))
        self._say_loaded(target, seconds=round(time.monotonic() - began_s, 3))
        self._failures = 0
        self._check_s = time.monotonic() + CHECK_SECONDS
        self._copies.keep(chain)
        for digest in self._copies.remove_old():
            self._tell("removed", f"removed the copy of {digest}", {"digest": digest})

    def _take(self, piece: Piece, target: Target) -> None:
        began_s = time.monotonic()

        taken = self._copies.take(piece, lambda _bytes: self._refuse_unwanted(target))
        if taken.fetched:
            facts: dict[str, Any] = {"checkpoint": piece.name, "digest": piece.digest}
            facts["uri"] = piece.uri
            facts |= {"bytes": taken.bytes, "damaged": taken.damaged}
            facts |= {"seconds": round(time.monotonic() - began_s, 3)}
            damaged = "; the copy that was there was damaged" if taken.damaged else ""
            text = f"fetched {piece.name} from {piece.uri}, {taken.bytes} bytes, verified{damaged}"
            self._tell("fetched", text, facts)

    def _refuse_unwanted(self, target: Target) -> None:
        """Raises Unwanted."""
        wanted = self._target
        if self._ended or (wanted is not None and wanted.digest != target.digest):
            raise Unwanted

    def _facts(self, target: Target, chain: Sequence[Piece]) -> dict[str, str]:
        """What the command is told."""
        paths = [str(self._copies.path(one)) for one in chain]
        digests = [one.digest for one in chain]
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

    def _run(self, execute: str, facts: dict[str, str]) -> loading_command.Ended:
        return loading_command.run(
            execute,
            facts,
            seconds_max=self._settings.room(FleetSettings).follow_command_seconds_max,
            lock=self._lock,
            given_up=lambda: self._ended,
        )

    def _forget(self) -> None:
        """From here on nobody knows what the engine has."""
        self._loaded = None
        remember(self._plan.directory, Remembered(self._memory.sidecar))

    # Telling

    def _say(self, **changed: Any) -> None:
        loaded = self._loaded
        named = (loaded.checkpoint, loaded.digest) if loaded is not None else (None, None)
        self._said = replace(self._said, **changed)
        self._said = replace(self._said, loaded=named[0], digest=named[1])
        self._reporter.say(self._said)

    def _say_loaded(self, target: Target, **facts: Any) -> None:
        news = self._said.state != "loaded" or self._said.wanted != target.checkpoint
        named = {"wanted": target.checkpoint, "version": target.version}
        self._say(state="loaded", problem=None, **named)
        if news:
            self._tell("loaded", f"loaded {target.checkpoint}", _named(target) | facts)

    def _say_failed(
        self, target: Target, error: PenstockError, pause_s: float | None = None
    ) -> None:
        problem = " ".join(str(error).split())
        named = {"wanted": target.checkpoint, "version": target.version}
        self._say(state="failed", problem=problem, **named)
        if pause_s is not None:
            text = f"{problem} It is tried again in {pause_s:g} s."
            facts = _named(target) | {"problem": problem, "again_in_s": pause_s}
            self._tell("failed", text, facts)

    def _say_standing(self, one: Standing) -> None:
        facts = {"loaded": dict(one.loaded), "wanted": one.wanted, "replicas": one.replicas}
        text = say_standing(self._plan.channel, one)
        self._tell("mixed" if one.mixed else "whole", text, facts)


def _kept(loaded: Loaded) -> list[Piece]:
    """As far as it matters to find their copies: the registry may be away."""
    return [Piece(loaded.checkpoint, one, "", "", None) for one in loaded.chain]


def _named(target: Target) -> dict[str, Any]:
    facts = msgspec.to_builtins(target)
    assert isinstance(facts, dict)
    return facts
