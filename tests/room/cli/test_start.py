"""How much a command loads before it does anything: what is not needed costs each start its time.
Modules are counted, not seconds."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from penstock.core.room import Task, rooms
from penstock.core.settings import load_settings
from penstock.doors import cli
from penstock.lake.lake import open_or_make
from tests.support.commands import penstock

#: Loaded by the work of a command alone, never by its help.
HEAVY = {
    "alembic", "cryptography", "duckdb", "jinja2", "litestar", "numpy", "pyarrow", "rapidfuzz",
    "rich", "scipy", "sqlalchemy", "structlog", "uvicorn",
}  # fmt: skip


def loaded_by(program: str) -> set[str]:
    """The modules that are there when a program of its own has ended."""
    script = f"import sys\n{program}\nprint(*sys.modules, file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(ended.stderr.split())


def commands() -> Any:
    return typer.main.get_command(cli.app)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_list_of_commands_loads_no_room(option: str) -> None:
    program = f"""
from penstock.doors.cli import main
sys.argv = ["penstock", "{option}"]
try:
    main()
except SystemExit:
    pass
"""
    modules = loaded_by(program)
    assert not modules & HEAVY
    assert not {name for name in modules if name.endswith(".cli") and name != "penstock.doors.cli"}
    assert "msgspec" not in modules


def test_the_help_of_each_command_loads_none_of_what_its_work_needs() -> None:
    program = """
import typer
from penstock.doors.cli import app

def ask(command, name):
    context = typer.Context(command, info_name=name)
    command.get_help(context)
    if hasattr(command, "list_commands"):
        for part in command.list_commands(context):
            ask(command.get_command(context, part), part)

ask(typer.main.get_command(app), "penstock")
"""
    modules = loaded_by(program)
    assert "penstock_jobs.shards.cli" in modules
    assert not modules & HEAVY


def test_a_run_of_rewards_loads_only_what_it_uses(tmp_path: Path) -> None:
    """Neither what makes log lines, nor Alembic where the database is up to date, nor pandas, for
    which Arrow asks at the first value."""
    lake = tmp_path / "lake"
    with open_or_make(load_settings(lake)):
        pass
    program = f"""
from penstock.doors.cli import main
sys.argv = ["penstock", "rewards", "run", "--data", {str(lake)!r}, "--json"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
"""
    modules = loaded_by(program)
    assert "pyarrow" in modules
    assert not modules & {"alembic", "pandas", "prometheus_client", "structlog"}


def test_a_program_that_wants_data_frames_gets_them() -> None:
    program = """
from penstock.core.arrow_start import start_arrow_light
start_arrow_light()
import pyarrow as pa
table = pa.table({"a": [1, 2]})
assert "pandas" not in sys.modules
try:
    import pandas
except ImportError:
    pass
else:
    assert table.to_pandas()["a"].tolist() == [1, 2]
    assert pa.array(pandas.Series([1.0, None])).null_count == 1
assert pa.__spec__.loader is pa.__loader__
"""
    assert "pyarrow" in loaded_by(program)


def test_the_package_alone_loads_next_to_nothing() -> None:
    modules = loaded_by("import penstock\npenstock.PenstockError")
    assert {name for name in modules if name.partition(".")[0] == "penstock"} == {
        "penstock",
        "penstock.core",
        "penstock.core.errors",
    }
    assert not modules & {*HEAVY, "importlib.metadata", "msgspec", "typer"}


def test_the_list_says_of_each_command_what_its_room_says_of_it() -> None:
    context = typer.Context(commands())
    said = {
        name: commands().get_command(context, name).get_short_help_str(1_000)
        for name in commands().list_commands(context)
    }
    summaries = [part for room in rooms() for part in room.summaries.values()]
    assert said == {name: text for part in summaries for name, text in part.items()}
    tasks = [
        line.removesuffix(":")
        for line in penstock("--help").stdout.splitlines()
        if line.endswith(":")
    ]
    assert tasks == ["Options", *get_args(Task)]
    assert tasks[1] == "Start here"


@pytest.mark.parametrize(
    ("typo", "near"),
    [
        (("promot",), "Did you mean `penstock promote`?"),
        (("buld",), "Did you mean `penstock shards build`?"),
        (("shards", "buld"), "Did you mean 'build'?"),
        (("xyzzy",), "No such command 'xyzzy'."),
    ],
)
def test_a_misspelled_command_is_told_the_nearest(typo: tuple[str, ...], near: str) -> None:
    refused = penstock(*typo)
    assert refused.returncode == 2
    assert near in refused.stderr


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("penstock sh", ["shards"]),
        ("penstock shards ex", ["export"]),
        ("penstock --ver", ["--version"]),
    ],
)
def test_a_shell_completes_commands(words: str, completed: list[str]) -> None:
    environment = {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    ended = subprocess.run(
        [Path(sys.executable).with_name("penstock")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout.split() == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_completion_is_one_of_its_shell(shell: str, tmp_path: Path) -> None:
    script = subprocess.run(
        [Path(sys.executable).with_name("penstock")],
        env={"_PENSTOCK_COMPLETE": f"source_{shell}"}, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    assert f"complete_{shell}" in script
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "completion"
    # zsh has the function that it calls once its completion was set up.
    begin = "autoload -Uz compinit && compinit -u\n" if shell == "zsh" else ""
    file.write_text(f"{begin}{script}")
    sourced = subprocess.run(
        [program, "-c", f". {file}"],
        env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (sourced.returncode, sourced.stderr) == (0, "")


def leaves(group: Any, *words: str) -> list[list[str]]:
    """Each group and each command, as it is called."""
    context = typer.Context(group)
    names = group.list_commands(context) if hasattr(group, "list_commands") else []
    parts = {name: group.get_command(context, name) for name in names}
    below = [leaf for name, part in parts.items() for leaf in leaves(part, *words, name)]
    return [list(words), *below]


def test_every_command_helps_with_h_and_refuses_what_it_has_not() -> None:
    """--url is refused in one way by all that have none."""
    root = commands()
    called = leaves(root)
    assert len(called) > 60
    for words in called:
        short = penstock(*words, "-h")
        assert (short.returncode, short.stderr) == (0, ""), words
        if len(words) < 2:
            assert short.stdout == penstock(*words, "--help").stdout
        assert words == [] or short.stdout.startswith(f"Usage: penstock {' '.join(words)} ")
        if "--url" not in short.stdout and "COMMAND [ARGS]" not in short.stdout:
            refused = penstock(*words, "--url", "http://127.0.0.1:1")
            assert refused.returncode == 2, words
            needs = "works on the files of a lake" if "--data" in short.stdout else "leave it out"
            assert needs in refused.stderr, words


def test_help_names_values_by_what_they_are() -> None:
    def helps(command: Any, name: str) -> str:
        context = typer.Context(command, info_name=name, terminal_width=200)
        parts = getattr(command, "commands", {})
        return str(command.get_help(context)) + "".join(map(helps, parts.values(), parts))

    group = commands()
    for name in group.list_commands(None):
        text = helps(group.get_command(None, name), name)
        assert not re.findall(r"<(?:str|int|float|Path|list)\b[^>]*>", text), name
