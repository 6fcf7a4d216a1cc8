"""What a comparison keeps, what it moves, and what it may cost."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.rewards.texts.changes import Block, CompareCost, TextChange, compare

CELLS_MAX = 100_000_000
CODE = st.text("ab({ \n\t", max_size=60)


def change(old: str, new: str) -> TextChange:
    return compare(old, new, CompareCost(CELLS_MAX))


def test_a_stretch_at_another_place_has_moved() -> None:
    moved = "def moved(one, two):\n    return one\n"
    rest = "".join(f"line_{n} = {n}\n" for n in range(9))
    assert change(moved + rest, rest + moved).moved == [Block(0, len(rest), len(moved) - 1)]
    # The line end is not part of a line's stretch, and a short stretch moves by chance.
    assert change("}\n" + rest, rest + "}\n").moved == []


@given(CODE, CODE)
def test_blocks_are_alike_in_order_and_apart(old: str, new: str) -> None:
    found = change(old, new)
    i = j = 0
    for block in found.kept:
        assert block.n > 0
        assert block.i >= i
        assert block.j >= j
        i, j = block.i + block.n, block.j + block.n
    seen_old: set[int] = set()
    seen_new: set[int] = set()
    for i, j, n in found.kept + found.moved:
        assert old[i : i + n] == new[j : j + n]
        assert seen_old.isdisjoint(range(i, i + n))
        assert seen_new.isdisjoint(range(j, j + n))
        seen_old.update(range(i, i + n))
        seen_new.update(range(j, j + n))


@given(CODE)
def test_nothing_changed(text: str) -> None:
    assert change(text, text) == TextChange([Block(0, 0, len(text))] if text else [], [])


def _lines(count: int) -> list[str]:
    dice = random.Random(4)
    return [f"x{n} = call({dice.random()})\n" if n % 2 else "    }\n" for n in range(count)]


def test_cost_of_shuffled_lines() -> None:
    old = _lines(10_000)
    new = random.Random(5).sample(old, len(old))
    work = CompareCost(CELLS_MAX)
    compare("".join(old), "".join(new), work)
    assert work.spent < 500 * len(old)
