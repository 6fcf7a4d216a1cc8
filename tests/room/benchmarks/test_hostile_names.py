"""Files of a suite are written below the folder of a sandbox, and nowhere else."""

from pathlib import Path

import pytest

from penstock.errors import InvalidInput
from penstock_jobs.benchmarks.sandbox.folder_files import File, write_folder
from penstock_jobs.benchmarks.suite import read_suite


@pytest.mark.parametrize("name", ["../victim", "/tmp/victim", "a/../../victim", "a\0b", ""])
@pytest.mark.parametrize("kind", ["file", "program", "link"])
def test_a_file_is_written_below_its_folder(tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / "sandbox"
    folder.mkdir()
    with pytest.raises(InvalidInput):
        write_folder(str(folder), [File(name, b"x", kind)])
    assert [path.name for path in tmp_path.iterdir()] == ["sandbox"]


@pytest.mark.parametrize("name", ["a\\b", "a\nb", "\x1b[2J"])
def test_a_suite_with_such_a_file_is_refused(tmp_path: Path, name: str) -> None:
    task = tmp_path / "tasks" / "one"
    (task / "tree").mkdir(parents=True)
    (task / "task.toml").write_text('prompt = "look"\nexpect = "no_edit"\n')
    (tmp_path / "suite.toml").write_text('name = "core"\n')
    assert read_suite(tmp_path).name == "core"
    (task / "tree" / name).write_text("x")
    with pytest.raises(InvalidInput, match="control character"):
        read_suite(tmp_path)
