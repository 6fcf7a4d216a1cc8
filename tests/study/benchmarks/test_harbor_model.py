"""Written tasks are read by Harbor's own model.

It runs where HARBOR_PYTHON names a Python with the package harbor, which needs Python 3.12."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from penstock_jobs.benchmarks.harbor.export import export_tasks
from penstock_jobs.benchmarks.suite import read_suite

CORE = Path(__file__).parents[3] / "examples" / "suites" / "core"
PYTHON = os.environ.get("HARBOR_PYTHON", "")
READ = """
import json, pathlib, sys
from harbor.models.task.task import Task
tasks = [Task(place) for place in sorted(pathlib.Path(sys.argv[1]).iterdir())]
print(json.dumps([[task.name, task.config.schema_version, task.instruction] for task in tasks]))
"""


@pytest.mark.skipif(not PYTHON, reason="HARBOR_PYTHON names no Python with harbor")
def test_harbor_reads_what_is_written(tmp_path: Path) -> None:
    suite = read_suite(CORE)
    assert export_tasks(suite, tmp_path / "written") == {}
    said = subprocess.check_output([PYTHON, "-c", READ, str(tmp_path / "written")])
    assert json.loads(said) == [
        [f"{suite.name}/{task.name}", "1.4", task.prompt.lstrip("\n")] for task in suite.tasks
    ]
