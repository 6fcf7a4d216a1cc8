"""Other users of the machine read nothing of a data directory, whatever the umask."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.core.files import make_private
from penstock.core.settings import Settings
from penstock.lake.query.spill import SPILL_FOLDER, remove_left_spill, spill_folder
from penstock.registry.checkpoints.digests import digest_files
from penstock.registry.fleet.checkpoint_cache import CheckpointCache, locked
from penstock.registry.fleet.engine import SidecarMemory, write_memory
from penstock.registry.fleet.registry_source import ChainLink
from penstock_jobs.simulator.demo.server import running_server
from tests.support.commands import penstock
from tests.support.repository import ROOT

RECIPE = ROOT / "examples" / "recipes" / "sft-persistent.toml"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Everything that is made is for everybody, unless its maker says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def wider_than_own(directory: Path) -> list[str]:
    paths = [directory, *directory.rglob("*")]
    return [
        f"{path.relative_to(directory)} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in paths
        if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)
    ]


def run(data: Path, *arguments: str) -> str:
    done = penstock(*arguments, "--data", str(data))
    assert done.returncode == 0, done.stderr
    os.umask(0)
    return done.stderr


@pytest.mark.usefixtures("open_umask")
def test_a_whole_data_directory_is_its_owner_s_alone(tmp_path: Path) -> None:
    data = tmp_path / "penstock-data"
    run(data, "import", str(ROOT / "examples" / "sessions"))
    run(data, "rewards", "run")
    run(data, "shards", "build", str(RECIPE))
    run(data, "query", "select count(*) from events")
    run(data, "webhooks", "add", "https://fleet.example.com/hook?token=t")
    made = tmp_path / "made"
    made.mkdir()
    (made / "weights.bin").write_bytes(b"weights")
    run(data, "checkpoints", "register", "one", "--uri", str(made))
    digest = digest_files(str(made), Settings(data=data)).digest or ""
    with locked(data / "serving" / "production") as _lock:
        copies = CheckpointCache(data / "serving" / "production", Settings(data=data))
        copies.provide(ChainLink("one", digest, str(made), "whole", None), lambda _bytes: None)
        write_memory(copies.directory, SidecarMemory("sidecar"))
    with running_server(data) as server:
        assert wider_than_own(data) == []
        with server.client(server.key) as client:
            client.send_events(
                b'{"session_id":"s","ts":1,"type":"user_message","payload":{"text":"a"}}'
            )
            client.post("/v1/query", b'{"sql":"select count(*) from events"}')
        assert wider_than_own(data) == []
    assert wider_than_own(data) == []
    folders = {path.name for path in data.iterdir()}
    assert {"log", "lake", "serving", "tmp", "penstock.db", "secret.key"} <= folders


@pytest.mark.usefixtures("open_umask")
def test_an_older_data_directory_is_narrowed_and_that_is_said_once(tmp_path: Path) -> None:
    data = tmp_path / "penstock-data"
    run(data, "import", str(ROOT / "examples" / "sessions"))
    outside = tmp_path / "outside"
    outside.write_text("another's")
    (data / "link").symlink_to(outside)
    for path in [data, *data.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert "now only its owner can" in run(data, "ledger")
    assert "now only its owner can" not in run(data, "ledger")
    (data / "link").unlink()
    assert wider_than_own(data) == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o666


def test_a_directory_that_all_share_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert not make_private(tmp_path)
    assert not make_private(tmp_path / "absent")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


@pytest.mark.usefixtures("open_umask")
def test_a_store_s_files_are_its_owner_s_alone(tmp_path: Path) -> None:
    with FileStore(tmp_path / "lake").create("events/a") as file:
        file.write(b"a")
    assert wider_than_own(tmp_path / "lake") == []


def test_spill_of_a_killed_process_is_removed_and_that_of_others_is_not(tmp_path: Path) -> None:
    data = Settings(data=tmp_path).data
    script = (
        "import sys, time; from pathlib import Path\n"
        "from penstock.lake.query.spill import spill_folder\n"
        "with spill_folder(Path(sys.argv[1])) as folder:\n"
        "    folder.mkdir(); (folder / 'part').write_bytes(b'rows')\n"
        "    print(folder, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(data)], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        left = Path(victim.stdout.readline().strip())
        with spill_folder(data) as mine:
            mine.mkdir()
            assert remove_left_spill(data) == 0
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            assert remove_left_spill(data) == 0
            assert (mine.exists(), (left / "part").exists()) == (True, True)
        assert list((data / SPILL_FOLDER).iterdir()) == [left]
        assert remove_left_spill(data) == 1
    assert list((data / SPILL_FOLDER).iterdir()) == []
