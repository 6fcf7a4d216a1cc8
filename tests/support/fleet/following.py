"""Sidecars for tests: in a thread of this process, or as a process of their own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.backends.database.engine import Database
from penstock.core.errors import PenstockError
from penstock.core.settings import Settings
from penstock.registry.checkpoints.registration import register
from penstock.registry.fleet import FleetSettings
from penstock.registry.fleet.checkpoint_cache import locked
from penstock.registry.fleet.fleet_status import PartName
from penstock.registry.fleet.registry_source import lake_source
from penstock.registry.fleet.sidecar import Sidecar, SidecarPlan
from tests.support.checkpoint_factory import TENANT, promote
from tests.support.waiting import eventually

#: Keeps what it is told, a line a run: what it loads, and what was loaded before.
JOURNAL = 'echo "$PENSTOCK_CHECKPOINT<$PENSTOCK_LOADED" >> "$PENSTOCK_FOLDER/../journal"'

LARGE_BYTES = 192 * 1024 * 1024


def make_files(folder: Path, name: str) -> Path:
    """The files of a checkpoint."""
    made = folder / name
    (made / "layers").mkdir(parents=True)
    (made / "config.json").write_text(json.dumps({"name": name}))
    (made / "layers" / "0.bin").write_bytes(name.encode() * 1_000)
    return made


def add_files(database: Database, path: Path | str, name: str, **facts: Any) -> None:
    settings = Settings(data=Path("/nonexistent"))
    told = {"tenant": TENANT, "digest": None, "actor": "trainer", "uri": str(path)}
    register(database, settings, name=name, **told | facts)


def add_large(fleet: "Fleet") -> Path:
    """A checkpoint that takes its time: its small files come first."""
    path = make_files(fleet.folder / "made", "large")
    with (path / "weights.bin").open("wb") as file:
        file.truncate(LARGE_BYTES)
    add_files(fleet.database, path, "large")
    return path


@dataclass
class Follower:
    """A sidecar in a thread. `events` are what it told: kinds with their facts."""

    directory: Path
    sidecar: Sidecar
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    error: PenstockError | None = None
    result: bool | None = None

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def wait_for(self, kind: str, times: int = 1) -> dict[str, Any]:
        """The facts of the newest such event."""
        eventually(lambda: self.kinds().count(kind) >= times or self.error is not None)
        assert self.error is None
        return [facts for one, facts in self.events if one == kind][-1]

    def journal(self) -> list[str]:
        path = self.directory / "journal"
        return path.read_text().split() if path.exists() else []


@dataclass
class Fleet:
    """Starts sidecars on a database, and its checkpoints' files."""

    database: Database
    folder: Path
    settings: Settings

    def add(self, name: str, **facts: Any) -> Path:
        path = make_files(self.folder / "made", name)
        add_files(self.database, path, name, **facts)
        return path

    def promote(self, name: str, **facts: Any) -> None:
        promote(self.database, name, **facts)

    @contextmanager
    def following(
        self, execute: str = JOURNAL, replica: str = "a", part: PartName = "main", **facts: Any
    ) -> Iterator[Follower]:
        directory = self.folder / f"copies-{replica}"
        room = self.settings.room(FleetSettings)
        turned = {name: facts.pop(name) for name in list(facts) if hasattr(room, name)}
        plan = SidecarPlan(
            channel="production", part=part, replica=replica, directory=directory, execute=execute,
            **{"retry_seconds": 0.02} | facts,
        )  # fmt: skip
        used = replace(self.settings, rooms=(replace(room, **turned),))
        lake: Any = SimpleNamespace(database=self.database, settings=used)
        source = lake_source(lake, TENANT, "production", part)
        events: list[tuple[str, dict[str, Any]]] = []

        def tell(kind: str, text: str, told: dict[str, Any]) -> None:
            events.append((kind, told | {"text": text}))

        with locked(directory) as lock:
            sidecar = Sidecar(plan, source, used, lock=lock, tell=tell)
            follower = Follower(directory, sidecar, events)

            def run() -> None:
                try:
                    follower.result = sidecar.run()
                except PenstockError as error:
                    follower.error = error

            thread = threading.Thread(target=run)
            thread.start()
            try:
                yield follower
            finally:
                sidecar.end_soon()
                thread.join(300)
                assert not thread.is_alive()


@contextmanager
def process(
    data: Path, *arguments: str, key: str = "", **settings: object
) -> Iterator[subprocess.Popen[str]]:
    """`penstock channels follow production …`, killed at the end if it has not ended."""
    named = {f"PENSTOCK_{name.upper()}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "penstock", "channels", "follow", "production"]
    started = subprocess.Popen(
        [*command, "--data", str(data), "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_KEY": key, **named},
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def next_event(started: subprocess.Popen[str], *kinds: str) -> dict[str, Any]:
    """The next event of these kinds."""
    assert started.stdout is not None
    for line in started.stdout:
        found: dict[str, Any] = json.loads(line)
        if found["event"] in kinds:
            return found
    assert started.stderr is not None
    raise AssertionError(f"it ended: {started.stderr.read()}")
