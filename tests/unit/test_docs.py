"""The documentation names everything that a user can meet."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.settings_page import settings_list
from bench.sql_page import written
from penstock.cli import app
from penstock.errors import PenstockError
from penstock.events.event import PAYLOADS
from penstock.lake.view_sources import view_names
from penstock.metrics import CATALOGUE, PREFIX
from penstock.server.app import ROUTES
from penstock.settings import declarations, variables
from tests.support.lakes import hand_lake
from tests.support.repository import ROOT


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def commands() -> dict[str, Any]:
    """Every command by its full name."""
    named: dict[str, Any] = {}

    def collect(command: Any, name: str) -> None:
        if not hasattr(command, "list_commands"):
            named[name] = command
            return
        for part in command.list_commands(None):
            collect(command.get_command(None, part), f"{name} {part}")

    collect(typer.main.get_command(app), "penstock")
    return named


def test_the_docs_list_the_settings_as_they_are_declared() -> None:
    """`make docs` writes the table."""
    assert settings_list() in page("docs/settings.md")


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_metric_stands_in_the_docs_with_its_meaning(name: str) -> None:
    metric = CATALOGUE[name]
    assert f"- `{PREFIX}{name}` {metric.kind.__name__.lower()}" in page("docs/metrics.md")
    assert metric.meaning in page("docs/metrics.md")


def test_the_docs_name_no_metric_or_setting_that_does_not_exist() -> None:
    metrics = set(re.findall(rf"^- `{PREFIX}(\w+)`", page("docs/metrics.md"), re.MULTILINE))
    assert metrics == set(CATALOGUE)
    text = "".join(page(str(path.relative_to(ROOT))) for path in (ROOT / "docs").glob("*.md"))
    named = {name.lower() for name in re.findall(r"PENSTOCK_([A-Z_]+[A-Z])", text)}
    assert named <= {one.name for one in declarations()} | variables()


def test_a_setting_is_declared_once_and_says_when_to_turn_it() -> None:
    names = [one.name for one in declarations()]
    assert len(names) == len(set(names))
    for one in declarations():
        assert one.metadata["turn"].endswith(".")


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_event_type_and_its_fields_stand_in_the_docs(name: str) -> None:
    row = next(r for r in page("docs/events.md").splitlines() if r.startswith(f"| `{name}` |"))
    for one in PAYLOADS[name].__struct_fields__:
        assert f"`{one}" in row


@pytest.mark.parametrize("name", sorted(view_names()))
def test_every_view_stands_in_the_docs(name: str) -> None:
    assert f"\n## {name}\n" in page("docs/sql.md")


def test_the_tables_of_sql_are_those_of_the_views(tmp_path: Path) -> None:
    """`make docs` writes them."""
    with hand_lake(tmp_path) as by_hand:
        assert written(page("docs/sql.md"), by_hand.lake) == page("docs/sql.md")


def test_the_queries_of_sql_run(tmp_path: Path) -> None:
    queries = re.findall(r"```sql\n(.*?)```", page("docs/sql.md"), re.DOTALL)
    assert len(queries) == len(view_names())
    with hand_lake(tmp_path) as by_hand:
        for query in queries:
            by_hand.lake.query(query).arrow()


def pages_below(folder: str) -> list[Path]:
    found = (ROOT / folder).rglob("*.md")
    return [path for path in found if "node_modules" not in path.parts]


def linked() -> list[tuple[str, str, str]]:
    """Each link to a file of this repository: the page, the file, the heading."""
    folders = ("docs", "bench", "examples", "clients", "deploy", ".github")
    pages = [*ROOT.glob("*.md"), *(page for each in folders for page in pages_below(each))]
    return [
        (str(path.relative_to(ROOT)), target, heading)
        for path in pages
        for target, heading in re.findall(
            r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", path.read_text("utf-8")
        )
    ]


def test_links_between_pages_lead_somewhere() -> None:
    for name, target, heading in linked():
        file = (ROOT / name).parent / target if target else ROOT / name
        assert file.exists(), (name, target)
        if heading:
            titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles]
            assert heading in anchors, (name, target, heading)


def test_the_files_that_the_page_on_architecture_names_are_there() -> None:
    rooms = [ROOT / "platform" / "penstock", ROOT / "jobs" / "penstock_jobs"]
    for name in re.findall(r"`(?:penstock/)?(\w+/[\w/]+\.py)`", page("docs/architecture.md")):
        assert any((room / name).exists() for room in rooms), name


@pytest.mark.parametrize("name", commands())
def test_every_command_stands_in_the_docs(name: str) -> None:
    program, first, *rest = name.split()
    row = next(
        r for r in page("docs/commands.md").splitlines() if r.startswith(f"- `{program} {first}`:")
    )
    assert all(f"`{word}`" in row for word in rest)


@pytest.mark.parametrize("name", commands())
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    command = commands()[name]
    assert f"Example: {name}" in (command.help or "")
    assert any(option.name == "json" for option in command.params)


def test_every_route_stands_in_the_docs() -> None:
    for route in ROUTES:
        for path in route.paths:
            assert path in page("docs/http.md")


def test_every_error_says_what_happened_in_a_sentence() -> None:
    def family(base: type[PenstockError]) -> list[type[PenstockError]]:
        return [base, *(one for child in base.__subclasses__() for one in family(child))]

    for one in family(PenstockError):
        assert (one.__doc__ or "").strip().endswith((".", "}")), one


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/security.md"])
def test_the_tests_that_a_page_on_security_names_are_there(name: str) -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page(name)))
    assert named
    for file, test in named:
        assert (ROOT / file).is_file(), file
        assert not test or f"def {test}(" in page(file), (file, test)
