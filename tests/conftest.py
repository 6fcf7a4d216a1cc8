import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.support.installed_wheel import InstalledWheel, install_wheel
from tests.support.servers.broker import Broker, running_broker
from tests.support.servers.postgres import PostgresServer, running_postgres
from tests.support.servers.ray_cluster import RayCluster, running_ray
from tests.support.servers.s3 import S3Server, s3_server
from tests.support.servers.shared import shared_server

#: The same examples each time, and no clock: the tests run on machines that are slow for a while.
settings.register_profile(
    "penstock", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock")

#: Each process has a service of its own, and what its tests start.
_PROCESSES_MAX = 4
_TESTS = Path(__file__).parent
_CPU_MINUTES_GOAL = 9
#: The servers of the scale-out twins, as fixtures and as parameters: what needs one is a test of
#: the system, in whichever folder its suite is.
_CLUSTERS = {"broker", "kafka", "postgres", "postgresql", "ray_cluster", "s3", "s3_process"}
#: The runs of `make test` and `make test-system`, with the folders that they leave out.
_TEST, _TEST_SYSTEM = "unit or room or smoke", "system and not smoke"
_LEFT_OUT = {_TEST: ["study"], _TEST_SYSTEM: ["study", "unit"]}


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test is what its folder says: `unit`, `room`, `system` or `study`. One of a room that
    starts processes says `system` itself."""
    if item.get_closest_marker("system"):
        return
    kind = item.path.relative_to(_TESTS).parts[0]
    needed = {*getattr(item, "fixturenames", ())}
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        needed |= {value for value in item.callspec.params.values() if isinstance(value, str)}
    if needed & _CLUSTERS:
        kind = "study" if kind == "study" else "system"
        item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "smoke"]
    item.add_marker(kind)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests are no garbage: to look for some takes two fifths of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without files to be named, no files are imported whose tests would all be left out."""
    run = config.option.markexpr
    if run not in _LEFT_OUT or _files_are_named(config):
        return None
    kind, *below = collection_path.relative_to(_TESTS).parts or [""]
    if kind in _LEFT_OUT[run]:
        return True
    if run == _TEST and kind == "system" and below and collection_path.name.startswith("test_"):
        return b"mark.smoke" not in collection_path.read_bytes() or None
    return None


def _files_are_named(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.ARGS


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """What a whole run took, with the processes that it started. It fails nothing: machines
    differ."""
    gc.unfreeze()  # or DuckDB takes what it finds at the end for leaks
    spread = config.getoption("numprocesses", None)
    if spread and not hasattr(config, "workerinput"):
        both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        minutes = sum(sum(resource.getrusage(who)[:2]) for who in both) / 60
        goal = f", goal {_CPU_MINUTES_GOAL}" if config.option.markexpr == _TEST else ""
        sys.stdout.write(f"{minutes:.1f} CPU minutes{goal}\n")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes have their length for a name. Their content may hold the time of day, as gzip's does,
    and then two processes know one test under two names."""
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """All tests are spread among processes. Some of them are done sooner in this one, unless
    `-n 2` says otherwise."""
    options = config.option
    chosen = _files_are_named(config) or options.keyword or options.lf
    if chosen or options.markexpr == "study":
        return 0
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    # More than cores: tests wait for disks, and those of the system for leases and kills.
    return min(cores + (2 if options.markexpr == _TEST_SYSTEM else 1), _PROCESSES_MAX)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests are spread the longest come first: at the end the other processes would wait."""
    if hasattr(config, "workerinput"):
        marks = ("long", "smoke")
        long = {item.path for item in items if any(map(item.get_closest_marker, marks))}
        items.sort(key=lambda item: item.path not in long)


class _ByFile(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """The tests of a file stay together, since they share what the file makes. The smoke tests of
    the system stay together too: they share a service."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = nodeid.partition("::")[0]
        smoke = self.config.option.markexpr == _TEST and file.startswith("tests/system/")
        return "tests/system" if smoke else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile:
    return _ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def _no_developer_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests never see the settings of whoever runs them, nor a login."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """Commands make their files private, also where a test runs them in its own process."""
    os.umask(0o022)
    yield
    os.umask(0o022)


@pytest.fixture(scope="session")
def _run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all processes of a run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def wheel(_run_folder: Path) -> Iterator[InstalledWheel]:
    """One environment for all tests of the wheel: they change nothing in it."""
    place = _run_folder / "wheel"
    with shared_server(_run_folder, "wheel", lambda: nullcontext(install_wheel(place))) as it:
        yield it


@pytest.fixture(scope="session")
def broker(_run_folder: Path) -> Iterator[Broker]:
    """One Kafka broker for all tests: each makes topics and groups of its own. A file whose tests
    stop it has one for itself."""
    with shared_server(_run_folder, "kafka", lambda: running_broker(_run_folder / "kafka")) as it:
        yield it


@pytest.fixture(scope="session")
def postgres(_run_folder: Path) -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests: each makes a database of its own. A file whose tests
    stop it has one for itself."""
    with shared_server(_run_folder, "postgres", running_postgres) as server:
        yield server


@pytest.fixture
def in_postgresql(postgres: PostgresServer, tmp_path: Path) -> Iterator[None]:
    """A lake in `tmp_path` has its metadata there, also where another process opens it: the
    data directory's settings file says so."""
    with postgres.database() as url:
        (tmp_path / "penstock.toml").write_text(f'database_url = "{url}"\n')
        yield


@pytest.fixture(scope="session")
def ray_cluster(_run_folder: Path) -> Iterator[RayCluster]:
    """One Ray cluster of two nodes for all tests. A file whose tests kill the second has one for
    itself."""
    with shared_server(_run_folder, "ray", running_ray) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def each_database(request: pytest.FixtureRequest) -> None:
    """The test runs once for each kind of database under a lake in `tmp_path`."""
    if request.param == "postgresql":
        request.getfixturevalue("in_postgresql")


@pytest.fixture(scope="session")
def s3_process(_run_folder: Path) -> Iterator[S3Server]:
    """One S3 server for all tests."""
    with shared_server(_run_folder, "s3", lambda: s3_server(_run_folder / "s3")) as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The same, with its keys in the environment. Each test takes a prefix of its own."""
    for name, value in s3_process.environment().items():
        monkeypatch.setenv(name, value)
    return s3_process
