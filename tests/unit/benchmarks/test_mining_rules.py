"""Which changes make a task: prompts that are cleaned, and rules that leave candidates out."""

import pytest

from penstock_jobs.benchmarks.mine.candidates import changelog_text, clean_message, prompt_of
from penstock_jobs.benchmarks.mine.history import parse_diff
from penstock_jobs.benchmarks.mine.rules import (
    CHANGED_LINES_MAX,
    MinedChange,
    broken_rule,
    file_kind,
    kind_of_work,
    measure,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File

PROMPT = "Let the parser keep the last row of a file."
BEFORE, AFTER = "rows = text.split('\\n')[:-1]", "rows = [row for row in text.splitlines() if row]"


def diff(path: str, *lines: str) -> str:
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@ def parse():\n"
    return head + "".join(f"{line}\n" for line in lines)


def change(*diffs: str, tree: dict[str, str] | None = None, kind: str = "file") -> MinedChange:
    diffs = diffs or (diff("shop/parser.py", f"-{BEFORE}", f"+{AFTER}"),)
    files = tree or {"shop/parser.py": BEFORE}
    given = [File(path, text.encode(), kind) for path, text in files.items()]
    return MinedChange(given, [], [], parse_diff("".join(diffs)))


def rule_of(changed: MinedChange, prompt: str = PROMPT) -> str | None:
    found = broken_rule(changed, prompt)
    return found.rule if found else None


@pytest.mark.parametrize(
    ("message", "cleaned"),
    [
        ("Fix bugs with wrapped (fixes #519)", "Fix bugs with wrapped"),
        ("#353: Handle obj=None", "Handle obj=None"),
        ("Fix #353: Handle obj=None", "Handle obj=None"),
        ("#262, #263: Handle fields() and `with rows:`", "Handle fields() and `with rows:`"),
        ("Keep rows, as asked for in #5.\n\nCloses :issue:`7`", "Keep rows, as asked for."),
        ("Keep rows (#12, #13)\n\nSigned-off-by: A <a@b.c>", "Keep rows"),
        ("Merge pull request #7 from ann/rows\n\nKeep the rows", "Keep the rows"),
        ("Undo 1a2b3c4d5e, see https://example.org/1", "Undo, see"),
        ("Use :func:`shop.parse` as in [the docs](x.md)", "Use `shop.parse` as in the docs"),
        ("Sort {meth}`Command.names`. {issue}`7` {pr}`8`", "Sort `Command.names`."),
        ("* fix pr#\n* keep rows\n", "* fix pr#\n* keep rows"),
    ],
)
def test_messages_without_what_only_the_author_knows(message: str, cleaned: str) -> None:
    assert clean_message(message) == cleaned


def test_a_prompt_says_each_thing_once() -> None:
    told = changelog_text([("changelog.d/3.md", ["Keep the rows.", "----"]), ("a.py", ["x = 1"])])
    assert told == "Keep the rows."
    assert prompt_of(["Keep the rows"], told) == "Keep the rows"
    assert prompt_of(["Rows"], "Keep the rows of a file.") == "Keep the rows of a file."
    assert changelog_text([("CHANGES.rst", [f"line {number}" for number in range(99)])]) == ""


def test_an_honest_change_is_a_task() -> None:
    honest = change()
    assert rule_of(honest) is None
    assert measure(honest, PROMPT) == {
        "languages": ["py"], "changed_lines": 2, "changed_files": 1,
        "work": "feature", "prompt_words": 10,
    }  # fmt: skip


TEST = diff("tests/test_parser.py", "+assert parse('a') == 1")
MORE = "return [parse_row(row, kind=None) for row in rows]"
LONGER = diff("shop/parser.py", f"+{AFTER}", f"+{MORE}")
ASKED = diff("a.py", "+def lastly(rows): ..."), diff("tests/test_a.py", "+lastly([])")
BROKEN = {
    "only_docs": (change(diff("README.md", "+more"), TEST), PROMPT),
    "format": (change(diff("a.py", "-f(a,b)", "+f(a, b)  ", "+# why")), PROMPT),
    "too_large": (change(diff("a.py", *["+x"] * (CHANGED_LINES_MAX + 1))), PROMPT),
    "says_too_little": (change(), "Change the exact time of rows."),
    "unusable_tree": (change(tree={"link": "../../etc/passwd"}, kind="link"), PROMPT),
    "history": (change(tree={"shop/.git/HEAD": "ref"}), PROMPT),
    "copy": (change(LONGER, tree={"old.patch": f"+{AFTER}\n+{MORE}\n"}), PROMPT),
    "gives_answer": (change(), f"{PROMPT} Write {AFTER}"),
    "name": (
        change(diff("a.py", "+def _keep_last(rows): ...")), f"{PROMPT} Call it _keep_last as usual."
    ),
    "line": (change(), f"{PROMPT} It is parser.py:12 that is wrong."),
    "untold": (change(*ASKED), PROMPT),
    "text": (
        change(
            diff("a.py", "+raise ValueError('there is no last row')"),
            diff("tests/test_a.py", "+match=r'there is no last row\\.'"),
        ),
        PROMPT,
    ),
}  # fmt: skip
RULES = {"format": "only_docs", "history": "history_in_tree", "copy": "history_in_tree",
         "name": "gives_answer", "line": "gives_answer", "text": "untold"}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_left_out(name: str) -> None:
    assert rule_of(*BROKEN[name]) == RULES.get(name, name)


def test_what_tests_ask_for_may_stand_in_the_prompt() -> None:
    assert rule_of(change(*ASKED), "Add lastly, which gives the last row of a file.") is None


def test_kinds() -> None:
    paths = (
        "tests/a.py",
        "conftest.py",
        "docs/a.py",
        "NEWS.md",
        "tox.ini",
        ".github/a.yml",
        "a/b.py",
    )
    kinds = ["test", "test", "docs", "docs", "dependencies", "dependencies", "source"]
    assert [file_kind(path) for path in paths] == kinds
    said = "Fix the crash", "Allow rows", "Rename the parser", "Hm.\nDo not fail"
    assert [kind_of_work(text) for text in said] == ["bug", "feature", "refactor", "bug"]
