"""A package of somebody else adds a reward, an importer and an exporter."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT

DEFINITION = """\
name = "ours"
combine = "mean"
[[reward]]
name = "apologises"
weight = -1.0
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The example, built and unpacked as pip does it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "examples" / "extension", check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "site")
    return tmp_path / "site"


def test_what_the_example_adds_is_found_by_its_entry_points(site: Path, tmp_path: Path) -> None:
    def penstock(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments, "--json"],
            env=os.environ | {"PYTHONPATH": str(site), "PENSTOCK_DATA": str(tmp_path / "data")},
            check=False,
            capture_output=True,
        )
        return json.loads(done.stdout)

    rows = [
        {"scribe_version": 1, "kind": "prompt", "id": str(number), "text": "hello",
         "time": f"2026-11-21T10:00:0{number}Z"}
        for number in range(2)
    ]  # fmt: skip
    (tmp_path / "talk.jsonl").write_text("\n".join(map(json.dumps, rows)))
    penstock("import", str(tmp_path / "talk.jsonl"))
    assert penstock("query", "select source, count(*) as n from events group by all") == [
        {"source": "scribe", "n": 2}
    ]
    (tmp_path / "ours.toml").write_text(DEFINITION)
    penstock("rewards", "run", "--definition", str(tmp_path / "ours.toml"))
    sql = "select name, value from rewards where name = 'apologises' and target_kind = 'session'"
    assert penstock("query", sql) == [{"name": "apologises", "value": 0.0}]
    refused = penstock("shards", "export", "none", "--to", "nothing", "--out", str(tmp_path / "o"))
    assert "session-names" in json.dumps(refused)
