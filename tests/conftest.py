import os
import sys
from collections.abc import Iterator
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

#: The same examples each time, and no clock: the tests run on machines that are slow for a while.
settings.register_profile(
    "penstock", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock")

#: Each process has servers of its own, of some GB together.
_PROCESSES_MAX = 4
#: Files that start first, since they take longest, and folders whose tests stay together.
_LONGEST = (
    "tests/demo/test_demo.py",
    "tests/deploy/test_running.py",
    "tests/durability/test_kills.py",
    "tests/execution/",
    "tests/faults/test_round.py",
    "tests/loop/test_kills.py",
    "tests/test_tutorial.py",
)
#: Where whole clusters, sandboxes, outages, kills and simulations are tested: `make test-system`.
_SYSTEM = (
    "tests/access/test_hostile_tenant.py::test_no_statement",
    "tests/benchmarks/test_lint.py",
    "tests/benchmarks/test_machine_sockets.py",
    "tests/benchmarks/test_running.py",
    "tests/benchmarks/test_sandbox.py",
    "tests/benchmarks/test_shipped_suites.py",
    "tests/canary/test_look.py",
    "tests/canary/test_watch.py",
    "tests/channels/test_bound_evidence.py::test_large_registries",
    "tests/channels/test_concurrent_promotions.py",
    "tests/channels/test_promotion_kills.py",
    "tests/checkpoints/test_scores.py::test_many_results",
    "tests/cli/test_from_anywhere.py::test_a_command_is_refused_to_the_roles",
    "tests/database/test_postgresql.py",
    "tests/demo/test_demo.py",
    "tests/deploy/test_running.py",
    "tests/durability/",
    "tests/eventlog/test_kafka.py",
    "tests/execution/",
    "tests/faults/test_round.py",
    "tests/fleet/test_processes.py",
    "tests/gate/test_sequential.py",
    "tests/ingest/test_kafka.py",
    "tests/lake/test_backup.py::test_a_backup_of_a_served_lake",
    "tests/lake/test_buckets.py",
    "tests/lake/test_damage.py",
    "tests/lake/test_lake_in_s3.py",
    "tests/lake/test_memory.py",
    "tests/lake/test_sorted_merge.py",
    "tests/lake/test_views.py::test_parts_merge_to_the_same_sessions",
    "tests/loop/test_asking.py",
    "tests/loop/test_commands.py",
    "tests/loop/test_examples.py",
    "tests/loop/test_kills.py",
    "tests/loop/test_live.py",
    "tests/loop/test_outages.py",
    "tests/loop/test_outputs.py",
    "tests/loop/test_running.py",
    "tests/loop/test_two_runners.py",
    "tests/privacy/test_erasure_kills.py",
    "tests/rewards/followups/test_llm_run.py",
    "tests/rewards/test_large_files.py",
    "tests/rewards/test_rates.py",
    "tests/rewards/test_run_commands.py::test_a_run_that_is_killed",
    "tests/rewards/test_run_elsewhere.py",
    "tests/server/test_channel_watching.py::test_a_server_that_stops",
    "tests/server/test_fleet_routes.py::test_metrics_tell",
    "tests/server/test_overload_and_end.py",
    "tests/sessions/test_export.py::test_a_lake_comes_back",
    "tests/sessions/test_export.py::test_simulated_sessions",
    "tests/shards/test_building.py::test_a_build_that_is_killed",
    "tests/shards/test_building.py::test_a_session_of_a_million_tokens",
    "tests/shards/test_building.py::test_the_same_bytes_",
    "tests/shards/test_order.py::test_each_comes_first",
    "tests/shards/test_outside.py",
    "tests/simulator/test_hacks.py",
    "tests/simulator/test_policy.py",
    "tests/simulator/test_sinks.py",
    "tests/simulator/test_truth.py",
    "tests/storage/test_s3.py",
    "tests/support/servers/",
    "tests/trainers/",
)
#: The servers of the scale-out twins, as fixtures and as parameters: what needs one is a test of
#: the system.
_CLUSTERS = {"broker", "kafka", "postgres", "postgresql", "ray_cluster", "s3_process"}


def pytest_itemcollected(item: pytest.Item) -> None:
    needed = {*getattr(item, "fixturenames", ())}
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        needed |= {value for value in item.callspec.params.values() if isinstance(value, str)}
    if item.nodeid.startswith(_SYSTEM) or needed & _CLUSTERS:
        item.add_marker("system")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes have their length for a name. Their content may hold the time of day, as gzip's does,
    and then two processes know one test under two names."""
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """All tests are spread among processes. Some of them are done sooner in this one, unless
    `-n 2` says otherwise."""
    options = config.option
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS or options.keyword or options.lf
    if chosen or options.markexpr == "slow":
        return 0
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    # One more than cores: tests wait for disks, and for the processes that they start.
    return min(cores + 1, _PROCESSES_MAX)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests are spread the longest come first: at the end the other processes would wait."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


class _ByFile(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """The tests of a file stay together, since they share what the file makes; and those on
    executors, since a Ray cluster is the dearest of the servers."""

    def _split_scope(self, nodeid: str) -> str:
        executors = "tests/execution/"
        return executors if nodeid.startswith(executors) else nodeid.partition("::")[0]


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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    """One environment for all tests of the wheel: they change nothing in it."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Kafka broker for all tests: each makes topics and groups of its own. A test that stops
    or kills it starts it again."""
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests: each makes a database of its own."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def in_postgresql(postgres: PostgresServer, tmp_path: Path) -> Iterator[None]:
    """A lake in `tmp_path` has its metadata there, also where another process opens it: the
    data directory's settings file says so."""
    with postgres.database() as url:
        (tmp_path / "penstock.toml").write_text(f'database_url = "{url}"\n')
        yield


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """One Ray cluster of two nodes for all tests. A test that kills the second starts it again."""
    with running_ray() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def each_database(request: pytest.FixtureRequest) -> None:
    """The test runs once for each kind of database under a lake in `tmp_path`."""
    if request.param == "postgresql":
        request.getfixturevalue("in_postgresql")


@pytest.fixture(scope="session")
def s3_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One S3 server for all tests."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The same, with its keys in the environment. Each test takes a prefix of its own."""
    for name, value in s3_process.environment().items():
        monkeypatch.setenv(name, value)
    return s3_process
