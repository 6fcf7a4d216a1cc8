"""Paths that differ in spelling alone are one file."""

import json

import pytest

from penstock_jobs.rewards.texts.trail import file_names
from tests.support.rewards.measures import MEASURES, PARAMETERS, value
from tests.support.rewards.stories import Story, bucket, found

BEFORE = "def total(prices):\n    return 0\n"
AFTER = "def total(prices):\n    return sum(prices) + shipping(prices)\n"


@pytest.mark.parametrize(
    "paths",
    [
        ["src/a.py", "./src/a.py", "src//a.py", "src/old/../a.py", "/srv/shop/src/a.py"],
        ["C:\\shop\\src\\a.py", "c:/x.py", "src/a.py", "C:/shop/src/./a.py"],
        ["/srv/shop/src/a.py", "/srv/shop/./src/a.py", "//srv/shop/src/a.py"],
    ],
)
def test_spellings_of_one_file(paths: list[str]) -> None:
    names = file_names(paths)
    assert file_names(["src/a.py", "lib/a.py", "a.b/c..py"]) == {}
    assert {names[path] for path in paths if path.endswith("a.py")} == {paths[0]}


def test_the_root_is_that_of_most_files_and_of_these_the_outermost() -> None:
    paths = ["a.py", "src/b.py", "/tmp/a.py", "/srv/shop/a.py", "/srv/shop/src/b.py"]
    assert file_names(paths)["/srv/shop/a.py"] == "a.py"
    assert file_names(paths)["/tmp/a.py"] == "/tmp/a.py"
    paths = ["a.py", "/shop/src/a.py", "/shop/a.py"]
    assert file_names(paths)["/shop/a.py"] == "a.py"
    assert file_names(paths)["/shop/src/a.py"] == "/shop/src/a.py"


def test_other_files_stay_apart() -> None:
    paths = ["src/a.py", "lib/a.py", "a.py", "src/A.py", "/srv/xsrc/a.py", "..", ""]
    assert file_names(paths) == {path: path for path in paths} | {"/srv/xsrc/a.py": "a.py"}


@pytest.mark.parametrize("path", ["./src/a.py", "/srv/shop/src/a.py"])
def test_a_look_at_another_spelling_of_the_path_sees_the_edit(path: str) -> None:
    story = Story().edit(0, BEFORE, AFTER, "src/a.py").look(30, BEFORE, path)
    assert value("edit_persistence", story) == 0


def test_an_edit_and_a_commit_by_other_spellings() -> None:
    story = Story().edit(0, BEFORE, AFTER, "/srv/shop/src/a.py")
    story.edit(5, AFTER, AFTER.replace("0", "1"), "./src/a.py")
    files = [{"path": "src/b.py", "renamed_from": "src/a.py", "text": AFTER}, "?", {"path": ["x"]}]
    story.event(30, "vcs_commit", json.dumps({"files": files}))
    assert value("edit_persistence", story) == 1
    rows = MEASURES["edit_persistence"](bucket(story), PARAMETERS)
    assert found(rows, "/srv/shop/src/a.py", 30, "file")["value"] == 1
