import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from penstock.backends.database import migrations
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake, open_or_make
from penstock.registry.checkpoints.registration import register
from penstock_jobs.benchmarks import run
from penstock_jobs.benchmarks.attempt import (
    AttemptOutcome,
    AttemptTask,
    RunConditions,
    attempt_task,
)
from penstock_jobs.benchmarks.sandbox.sandbox import (
    IsolatedSandbox,
    PathRules,
    ProgramEnd,
    SandboxFailed,
    SandboxLimits,
    SandboxProgram,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import load_files, read_suite
from tests.support.lakes import hand_lake
from tests.support.result_registry import Registry
from tests.support.suite_factory import make_suite, need_isolation

MIB = 1024 * 1024
TENANT = "default"


@pytest.fixture(scope="session")
def isolation() -> None:
    """For tests that need namespaces."""
    need_isolation()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """With two registered checkpoints, `old` and `new`."""
    monkeypatch.setattr(run, "RETRY_SECONDS", 0)
    with hand_lake(tmp_path / "data") as hand:
        for name in ("old", "new"):
            register(
                hand.lake.database,
                hand.lake.settings,
                tenant=TENANT,
                name=name,
                uri=f"https://models.example/{name}",
                digest=f"sha256:{name.encode().hex():0>64}",
                actor="test",
            )
        yield hand.lake


@pytest.fixture
def registry(tmp_path: Path, each_database: None) -> Iterator[Registry]:
    with open_or_make(load_settings(tmp_path)) as lake:
        if not lake.database.is_sqlite:
            migrations.upgrade(lake.database)
        yield Registry(lake.database, lake.settings)


@pytest.fixture
def sandbox(isolation: None) -> Iterator[IsolatedSandbox]:
    with open_sandbox() as sandbox:
        yield sandbox


def open_sandbox(
    *,
    processes: int = 32,
    memory_mib: int = 512,
    disk_mib: int = 16,
    views: PathRules | None = None,
    tree: Sequence[File] = (),
) -> IsolatedSandbox:
    bounds = SandboxLimits(memory_mib * MIB, processes, disk_mib * MIB)
    sandbox = IsolatedSandbox(bounds, views or PathRules(), 64 * 1024)
    try:
        sandbox.put("tree", tree, writable=True)
        for folder in ("out", "home", "scratch"):
            sandbox.put(folder, [], writable=True)
    except SandboxFailed:
        sandbox.close()
        raise
    return sandbox


def run_in(
    sandbox: IsolatedSandbox, command: str, seconds: float = 20.0, addresses: Sequence[str] = ()
) -> ProgramEnd:
    environment = {"PATH": os.environ["PATH"], "HOME": sandbox.path("home")}
    folders = {"tree": True, "out": True}
    shell = ["sh", "-c", command]
    return sandbox.run(
        SandboxProgram(shell, "tree", "home", "scratch", seconds, environment, folders, addresses)
    )


Attempting = Callable[..., AttemptOutcome]


@pytest.fixture
def attempt(isolation: None, tmp_path: Path) -> Attempting:
    """One attempt at a task with these files."""

    def attempt_once(
        agent: str, files: Mapping[str, str] | None = None, toml: str = "", **conditions: object
    ) -> AttemptOutcome:
        folder = tmp_path / "suite"
        suite = read_suite(make_suite(folder, {"one": files or {}}, toml))
        task = suite.task("one")
        how = RunConditions(
            agent=agent,
            suite=suite.name,
            checkpoint="new",
            retry_seconds=0,
            views=PathRules(hidden=[str(folder)]),
            **conditions,  # type: ignore[arg-type]
        )
        return attempt_task(AttemptTask(how, task, load_files(task, MIB)))

    return attempt_once
