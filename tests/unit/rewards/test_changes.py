"""What a comparison keeps, what it moves, and what it may cost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.rewards.texts.changes import (
    Block,
    CompareCost,
    TextChange,
    TooExpensive,
    compare,
    ink,
)

CELLS_MAX = 100_000_000
CODE = st.text("ab({ \n\t", max_size=60)


def change(old: str, new: str) -> TextChange:
    return compare(old, new, CompareCost(CELLS_MAX))


def test_lines_that_are_put_in_are_put_in_as_lines() -> None:
    # Cut at characters, the two `def ` would change places.
    old = "def one():\n    pass\n\ndef two():\n    pass\n"
    new = old.replace("def two", "def new():\n    pass\n\ndef two")
    start, size = old.index("def two"), len("def new():\n    pass\n\n")
    assert change(old, new).kept == [
        Block(0, 0, start),
        Block(start, start + size, len(old) - start),
    ]


def test_characters_inside_a_changed_line() -> None:
    assert change("x = call(1)\n", "x = call(27)\n").kept == [Block(0, 0, 9), Block(10, 11, 1)]


def test_short_alike_stretches_inside_a_line_are_chance() -> None:
    kept = change("return alpha\n", "yield beta_x\n").kept
    assert all(block.n >= 4 or block.i + block.n >= 12 or block.i == 0 for block in kept)


@pytest.mark.parametrize(
    "new",
    [
        "\tif x:\r\n\t\treturn  y\r\n",
        "if x:\n return y",
        "if x: return y\n",
        "\n\nif x:\n\n  return\ny",
    ],
)
def test_white_space_is_no_change(new: str) -> None:
    old = "    if x:\n        return y\n"
    assert sum(len(ink(old[i : i + n])) for i, _, n in change(old, new).kept) == len(ink(old))


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


def test_cost_of_ten_thousand_lines_is_linear() -> None:
    work = CompareCost(CELLS_MAX)
    old = _lines(10_000)
    new = [*old[:5], "first\n", *old[6:5_000], *old[5_010:9_990], "last\n", *old[9_991:]]
    kept = compare("".join(old), "".join(new), work).kept
    assert sum(block.n for block in kept) > 0.99 * len("".join(new))
    assert work.spent < 5 * len(old)


def test_cost_of_shuffled_lines() -> None:
    old = _lines(10_000)
    new = random.Random(5).sample(old, len(old))
    work = CompareCost(CELLS_MAX)
    compare("".join(old), "".join(new), work)
    assert work.spent < 500 * len(old)


def test_cost_of_a_megabyte_in_one_line() -> None:
    dice = random.Random(6)
    old = "".join(f"{dice.choice(('foo(', 'y=', 'return '))}a{n % 2_003};" for n in range(110_000))
    assert len(old) > 1_000_000
    new = f"A{old[1:500_000]}zz{old[500_003:-1]}B"
    work = CompareCost(CELLS_MAX)
    try:
        kept = compare(old, new, work).kept
    except TooExpensive:
        pytest.fail(f"too expensive after {work.spent}")
    assert sum(block.n for block in kept) > len(new) - 20
    assert work.spent < 10 * len(old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a" * 1_000_000, "ab" * 500_000),
        ("}\n" * 20_000, "{\n}\n" * 10_000),
        ("ab " * 200_000, "abc ab " * 100_000),
    ],
)
def test_a_pathological_pair_gives_up_before_it_costs(old: str, new: str) -> None:
    work = CompareCost(CELLS_MAX)
    with pytest.raises(TooExpensive):
        compare(old, new, work)
