"""Lines that may have been put in at several places were put in where a block begins."""

import pytest

from penstock_jobs.rewards.texts.changes import Block, CompareCost, compare, place_line_changes
from penstock_jobs.rewards.texts.provenance import between

F = "def f():\n    if a:\n        b()\n\n"
G = "def g():\n    if c:\n        b()\n\n"
DECORATED = "@d\ndef a():\n  1\n\n"


@pytest.mark.parametrize(
    ("old", "new", "came"),
    [
        ("x\n" + F + "end\n", "y\n" + F + G + "end\n", ["y\n", G]),
        (DECORATED, "@d\ndef b():\n  2\n\n" + DECORATED, ["@d\ndef b():\n  2\n\n"]),
        ("f {\n  x\n}\n", "q\nf {\n  x\n}\n\ng {\n  y\n}\n", ["q\n", "\ng {\n  y\n}\n"]),
        ("/**\n * a\n */\nf\n", "/**\n * b\n */\ng\n/**\n * a\n */\nf\n", ["/**\n * b\n */\ng\n"]),
        ("a\na\n", "a\na\na\n", ["a\n"]),
    ],
)
def test_what_came_begins_where_a_block_does(old: str, new: str, came: list[str]) -> None:
    for first, second in ((old, new), (new, old)):
        kept = compare(first, second, CompareCost(10**6)).kept
        blocks = place_line_changes(kept, first, second)
        assert all(first[i : i + n] == second[j : j + n] for i, j, n in blocks)
        longer, place = (second, 1) if len(second) > len(first) else (first, 0)
        covered = [(block[place], block.n) for block in blocks]
        assert [longer[slice(*gap)] for gap in between(covered, len(longer))] == came


def test_nothing_is_moved_out_of_a_line() -> None:
    kept = [Block(0, 0, 3), Block(3, 5, 3)]
    assert place_line_changes(kept, "abcabc", "abcabcabc"[:8]) == kept
    assert place_line_changes([], "", "x\n") == []
