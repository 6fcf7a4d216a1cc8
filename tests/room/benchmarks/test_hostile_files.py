"""Suites and results that were made to take all time or memory. A test that hangs has failed."""

from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks import suite
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit
from penstock_jobs.benchmarks.result_import import format_of
from penstock_jobs.benchmarks.sandbox.sandbox_files import FolderLimits
from penstock_jobs.benchmarks.suite import read_suite
from tests.support.suite_factory import make_suite

MIB = 1 << 20


def make_deep(folder: Path, depth: int) -> None:
    folder.joinpath(*["d"] * depth).mkdir(parents=True)


@pytest.mark.parametrize("name", ["suite.toml", "tasks/task-0/task.toml"])
@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("x = " + "[" * 9_999, "nested too deeply"),
        ("a." * 500_000 + "a = 1", "a key of more than 64 parts"),
        ("[" + '"a b" . ' * 99 + "a]", "a key of more than 64 parts"),
        ("x = {" + "'a'." * 99 + "a = 1}", "a key of more than 64 parts"),
        ("# " + "x" * MIB, "over the limit of 1048576"),
        ("# " + "x" * 4 * MIB, "longer than 4194304 bytes"),
        ("attempts = " + "9" * 5_000, "limit"),
        ("prompt = 1", "prompt"),
        ('title = "' + "\\" * 500_001, "Unescaped"),
    ],
)
def test_toml_is_bounded(tmp_path: Path, name: str, toml: str, why: str) -> None:
    folder = make_suite(tmp_path / "s")
    (folder / name).write_text(toml)
    with pytest.raises(InvalidInput) as refused:
        read_suite(folder)
    assert why in str(refused.value)
    assert name in str(refused.value)
    assert len(str(refused.value)) < 1_000


def test_prose_is_no_long_key(tmp_path: Path) -> None:
    prose = "prompt = '''" + "Say it. Then do it. See example.com ... " * 2_000 + "'''"
    folder = make_suite(tmp_path / "s", {"task": {"task.toml": prose}})
    assert read_suite(folder).task("task").prompt.startswith("Say it.")


@pytest.mark.parametrize("place", ["tasks/task-0/tree", "tasks/task-0/check", "check"])
def test_folders_of_a_suite_are_not_deep(tmp_path: Path, place: str) -> None:
    folder = make_suite(tmp_path / "s")
    make_deep(folder / place, 900)
    with pytest.raises(InvalidInput, match="lie more than 64 deep"):
        read_suite(folder)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = make_suite(tmp_path / "s")
    with (folder / "tasks" / "task-0" / "tree" / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidInput, match=r"tree/huge has over 268435456 bytes"):
        read_suite(folder)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (FolderLimits(entries=9, depth=9, file_bytes=MIB, bytes=MIB), "more than 9 files"),
        (FolderLimits(entries=99, depth=9, file_bytes=MIB, bytes=500), "more than 500 bytes"),
    ],
)
def test_all_files_of_a_suite_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: FolderLimits, why: str
) -> None:
    monkeypatch.setattr(suite, "_SUITE_LIMITS", limits)
    with pytest.raises(InvalidInput, match=why):
        read_suite(make_suite(tmp_path / "s", 3))


def test_folders_of_results_are_not_deep(tmp_path: Path) -> None:
    make_deep(tmp_path / "results", 900)
    with pytest.raises(InvalidInput, match="over 64 deep"):
        format_of(tmp_path / "results")


def test_a_string_without_an_end_is_looked_at_once() -> None:
    for end in (b"", b"\\"):
        with pytest.raises(Unfit):
            documents.decode(b'{"NaN": "' + rb"\"" * MIB + end, dict[str, str])
    assert documents.decode(rb'["\"NaN", NaN, -Infinity]', list[str]) == [
        '"NaN',
        "NaN",
        "-Infinity",
    ]
