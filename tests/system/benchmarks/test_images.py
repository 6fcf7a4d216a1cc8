"""An OCI image in place of the machine's files, taken from a real podman."""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import attempts_of, runs_of
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.run import RunOptions, run_suite
from penstock_jobs.benchmarks.suite import read_suite
from tests.room.benchmarks.conftest import TENANT
from tests.support.suite_factory import make_suite

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed"),
]


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """An image of a shell, `cat` and what they load, known to podman by its digest alone."""
    programs = [path for name in ("sh", "cat") if (path := shutil.which(name))]
    loads = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in loads.split() if word.startswith("/") and word[-1] != ":"}
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path in libraries:
            tar.add(path, path)
        for path in programs:
            tar.add(path, f"bin/{Path(path).name}")
        marker = tarfile.TarInfo("etc/which-image")
        content = f"{uuid4().hex}\n".encode()
        marker.size = len(content)
        tar.addfile(marker, BytesIO(content))
    name = f"localhost/penstock-test-{uuid4().hex[:12]}"
    subprocess.run(["podman", "import", archive, f"{name}:1"], check=True, capture_output=True)
    asked = ["podman", "image", "inspect", f"{name}:1"]
    (found,) = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)
    yield f"{name}@{found['Digest']}"
    subprocess.run(["podman", "rmi", f"{name}:1"], check=True, capture_output=True)


def test_a_suite_in_an_image(isolation: None, lake: Lake, tmp_path: Path, image: str) -> None:
    """Agent and check see its files, what setup wrote over them, and nothing of the machine."""
    toml = f"""
        [environment]
        image = "{image}"
        setup = ["echo made > /etc/made"]
        [check]
        command = ["sh", "check.sh"]
    """
    check = """
        test "$(cat /etc/which-image /etc/made)" = "$(cat answer)" || exit 1
        test ! -e /etc/os-release && test ! -e /usr/bin/env
    """
    folder = make_suite(tmp_path / "suite", {"one": {"check/check.sh": check}}, toml)
    suite = read_suite(folder)
    agent = "cat /etc/which-image /etc/made > answer; echo spoilt > /etc/made"
    with InlineExecutor() as executor:
        run_suite(lake, executor, suite, "new", RunOptions(agent=agent), tenant=TENANT)
    scope = AttemptScope(TENANT, suite.name, suite.version, "new")
    (result,) = (kept.result for kept in attempts_of(lake.database, scope))
    assert (result.score, result.error) == (1.0, None)
    (run,) = runs_of(lake.database, scope)
    assert len(run.conditions["layers"]) == 1
