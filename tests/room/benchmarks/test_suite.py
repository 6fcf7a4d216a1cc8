"""Suites are read whole, or refused with what is wrong and where."""

from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, write_folder
from penstock_jobs.benchmarks.suite import load_files, read_suite
from tests.support.suite_factory import make_suite, write

MIB = 1024 * 1024


def refused(folder: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_suite(folder)
    return str(caught.value)


def test_a_suite_with_all_that_it_can_say(tmp_path: Path) -> None:
    toml = """
        title = "Small things"
        attempts = 3
        [limits]
        seconds = 30
        [network]
        allow = ["packages.example:443"]
        [sources]
        repos = ["https://code.example/shop"]
    """
    task = 'prompt = "Do it."\ntags = ["py", "easy"]\nexpect = "any"\n[limits]\nmemory_mib = 64\n'
    folder = make_suite(tmp_path / "s", {"one": {"task.toml": task}}, toml)
    suite = read_suite(folder)
    one = suite.task("one")
    assert (suite.name, suite.title, suite.attempts) == ("mini", "Small things", 3)
    assert suite.allow == ("packages.example:443",)
    assert suite.sources.repos == ("https://code.example/shop",)
    assert (one.tags, one.expect) == (("py", "easy"), "any")
    assert (one.limits.seconds, one.limits.memory_mib, one.limits.processes) == (30, 64, 128)
    files = load_files(one, MIB)
    assert [file.path for file in files.tree] == ["question.txt"]
    assert [file.path for file in files.check] == ["check.py"]


def test_the_version_is_what_is_in_it(tmp_path: Path) -> None:
    folder = make_suite(tmp_path / "s", 2)
    version = read_suite(folder).version
    assert version == read_suite(make_suite(tmp_path / "elsewhere", 2)).version

    write(folder / "tasks/task-0/tree/__pycache__/x.pyc", "left by a program")
    write(folder / "tasks/task-0/tree/.git/config", "history")
    write(folder / ".git/config", "history")
    assert read_suite(folder).version == version
    assert all(".git" not in one.path for one in load_files(read_suite(folder).tasks[0], MIB).tree)

    question = folder / "tasks/task-0/tree/question.txt"
    question.chmod(0o755)
    programs = read_suite(folder).version
    assert programs != version
    question.chmod(0o644)
    assert read_suite(folder).version == version
    question.rename(question.with_name("other.txt"))
    assert read_suite(folder).version not in (version, programs)


def test_a_solution_lies_over_the_tree(tmp_path: Path) -> None:
    files = {"solution/answer": "42\n", "tree/answer": "41\n"}
    task = read_suite(make_suite(tmp_path / "s", {"one": files})).task("one")
    found = {file.path: file.content for file in load_files(task, MIB).solution or []}
    assert (found["answer"], set(found)) == (b"42\n", {"answer", "question.txt"})


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("attempt = 2", "did you mean attempts?"),
        ("[limit]\nseconds = 2", "did you mean limits?"),
        ("[limits]\nmemory = 2", "did you mean memory_mib?"),
        ("[limits]\nseconds = 0", "from 1 on"),
        ("[limits]\nseconds = 99999999", "maximum is 604800"),
        ("[limits]\nseconds = 1.5", "whole number"),
        ("[network]\nalow = []", "did you mean allow?"),
        ("[network]\nallow = ['packages.example']", "HOST:PORT"),
        ("[check]\ncommand = 'python check.py'", "list of texts"),
        ("attempts = 0", "from 1 on"),
        ("attempts = [", "Invalid"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, toml: str, why: str) -> None:
    assert why in refused(make_suite(tmp_path / "s", 1, toml))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"task.toml": 'promt = "x"'}, "did you mean prompt?"),
        ({"task.toml": 'prompt = " "'}, "its prompt is empty"),
        ({"task.toml": ""}, "the prompt must be either"),
        ({"task.toml": 'prompt = "x"\nexpect = "nothing"'}, "not edit or no_edit or any"),
        ({"chek/check.py": "x"}, "did you mean check?"),
    ],
)
def test_tasks_that_cannot_be_meant_are_refused(
    tmp_path: Path, files: dict[str, str], why: str
) -> None:
    assert why in refused(make_suite(tmp_path / "s", {"one": files}))


@pytest.mark.parametrize("name", ["a\nb", "a b", "\x1b[31m", "ü", "x" * 200, "-a", "a,b"])
def test_names_that_are_not_plain_are_refused(tmp_path: Path, name: str) -> None:
    said = refused(make_suite(tmp_path / "s", {name: {}}))
    assert "cannot be used" in said
    assert said.isprintable()


def test_a_task_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    same = {"task.toml": 'prompt = "x"', "tree/question.txt": "y"}
    assert "one and two have the same" in refused(
        make_suite(tmp_path / "s", {"one": same, "two": same})
    )
    other = {"One": {}, "one": {"task.toml": 'prompt = "x"'}}
    assert "differ only in case" in refused(make_suite(tmp_path / "t", other))


def test_a_task_without_what_it_needs_is_refused(tmp_path: Path) -> None:
    folder = make_suite(tmp_path / "s", 1)
    check = folder / "tasks/task-0/check"
    check.rename(folder / "check")
    assert read_suite(folder).task("task-0").check_folder == folder / "check"
    (folder / "check").rename(tmp_path / "away")
    assert "has a folder check" in refused(folder)
    write(folder / "tasks/task-0/task.toml", 'prompt = "x"\nexpect = "no_edit"')
    assert read_suite(folder).task("task-0").check is None
    (folder / "tasks/task-0/tree").rename(tmp_path / "tree")
    assert "no folder tree" in refused(folder)


def test_no_suite_at_all(tmp_path: Path) -> None:
    assert "no suite.toml" in refused(tmp_path / "nowhere")
    (tmp_path / "suite.toml").write_text('name = "x"')
    assert "has no task" in refused(tmp_path)


def test_links_that_lead_out_of_a_tree_are_refused(tmp_path: Path) -> None:
    folder = make_suite(tmp_path / "s", 1)
    tree = folder / "tasks/task-0/tree"
    (tree / "inside").symlink_to("question.txt")
    task = read_suite(folder).task("task-0")
    assert File("inside", b"question.txt", "link") in load_files(task, MIB).tree
    (tree / "out").symlink_to("../check/check.py")
    assert "leads out" in refused(folder)


def test_files_that_change_after_reading_are_refused(tmp_path: Path) -> None:
    folder = make_suite(tmp_path / "s", 1)
    task = read_suite(folder).task("task-0")
    write(folder / "tasks/task-0/tree/more.txt", "new")
    with pytest.raises(InvalidInput, match="changed since"):
        load_files(task, MIB)


def test_what_the_suite_s_check_holds_lies_beneath_each_check(tmp_path: Path) -> None:
    folder = make_suite(tmp_path / "s", 1)
    own = (folder / "tasks/task-0/check/check.py").read_bytes()
    write(folder / "check/check.py", "raise SystemExit(0)")
    write(folder / "check/helper.py", "one = 1")
    suite = read_suite(folder)
    files = {file.path: file.content for file in load_files(suite.task("task-0"), 10**6).check}
    assert files == {"check.py": own, "helper.py": b"one = 1"}
    write(folder / "check/helper.py", "one = 2")
    with pytest.raises(InvalidInput, match="changed since"):
        load_files(suite.task("task-0"), 10**6)


# Names of files


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
    folder = make_suite(tmp_path / "s", 1)
    (folder / "tasks/task-0/tree" / name).write_text("x")
    assert "control character" in refused(folder)
