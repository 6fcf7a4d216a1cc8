"""The documentation names everything that a user can meet."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.reference.__main__ import FOLDER, PAGES
from penstock.core.errors import PenstockError
from penstock.core.settings import declarations, variables
from penstock.doors.cli import app
from penstock.events.event import PAYLOADS
from penstock.lake.query.view_sources import view_names
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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    """`make docs` writes it."""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name]()


def test_the_docs_name_no_setting_that_does_not_exist() -> None:
    text = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
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


def test_the_queries_of_the_docs_run(tmp_path: Path) -> None:
    reference, ask = (
        re.findall(r"```sql\n(.*?)```", page(name), re.DOTALL)
        for name in ("docs/reference/sql.md", "docs/ask.md")
    )
    words = set(re.findall(r"\w+", " ".join(reference)))
    assert view_names() <= words
    assert ask
    with hand_lake(tmp_path) as by_hand:
        for query in [*reference, *ask]:
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


@pytest.mark.parametrize("name", commands())
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    command = commands()[name]
    assert f"Example: {name}" in (command.help or "")
    assert any(option.name == "json" for option in command.params)


def test_every_error_says_what_happened_in_a_sentence() -> None:
    def family(base: type[PenstockError]) -> list[type[PenstockError]]:
        return [base, *(one for child in base.__subclasses__() for one in family(child))]

    for one in family(PenstockError):
        assert (one.__doc__ or "").strip().endswith((".", "}")), one


def test_what_enforces_a_promise_of_security_is_there() -> None:
    named = re.findall(r"`((?:platform|jobs)/[^`]+)`", page("SECURITY.md"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
