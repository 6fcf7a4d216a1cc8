"""edit_persistence, by cases worked by hand. White space is never counted."""

import pytest

from tests.support.rewards.measures import state, value
from tests.support.rewards.stories import Story

BEFORE = "def total(rows):\n    return 0\n"
AFTER = "def total(rows):\n    subtotal = sum(rows)\n    return 0\n"
LINE = "    subtotal = sum(rows)\n"  # 18 characters without white space


def story(now: str, before: str = BEFORE, after: str = AFTER) -> Story:
    return Story().edit(0, before, after).look(31, now)


def persistence(now: str, before: str = BEFORE, after: str = AFTER) -> float:
    return value("edit_persistence", story(now, before, after))


def test_text_put_in_at_the_edge_changes_nothing_and_in_between_it_does() -> None:
    assert persistence(AFTER.replace("sum(rows)", "sum(rows)  # all")) == 1
    # subtotal=sum(rows) with `my` put before `rows`: 18 left of 18; grams: 15 as written, 17 now;
    # m(ro (row and um(r, those three across the gap, are gone, five are new:
    # (15 + 17 − 8) / 32 = 0.75.
    assert persistence(AFTER.replace("(rows)\n ", "(myrows)\n ")) == pytest.approx(0.75)


def test_a_deletion_persists_until_the_text_comes_back_at_its_place() -> None:
    # 18 characters were taken away.
    def kept(now: str) -> float:
        return persistence(now, before=AFTER, after=BEFORE)

    assert kept(BEFORE) == 1
    assert kept(AFTER) == 0
    assert kept("import os\n" + AFTER) == 0
    # sum(rows) came back in another form: total=sum(rows), 15 characters, which all were there.
    # Grams: 15 taken away, 12 now, of these all 12: 1 − |3| / 27 = 24/27. 1 − 15 × 24/27 / 18.
    assert kept(AFTER.replace("subtotal", "total")) == pytest.approx(1 - 15 * (24 / 27) / 18)
    # It came at another place, which says nothing.
    assert kept(BEFORE + "\n\n" + "# end of file, not of the function\n" + LINE) == 1


LINES = [f"step_{n} = compute({n})\n" for n in range(10)]


@pytest.mark.parametrize("after", ["", "\n"])
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("", 1),
        ("".join(LINES), 0),
        ("".join(LINES[:5]), 0.5),
        ("".join(LINES[5:]), 0.5),
        ("".join(LINES[3:7]), 0.6),
        ("".join(LINES[:2]), 0.8),
        ("first = 1\n" + "".join(LINES[:5]) + "last = 1\n" * 9, 0.5),
    ],
)
def test_a_file_that_was_emptied_and_in_part_restored(
    after: str, seen: bool, now: str, kept: float
) -> None:
    told = Story().look(-1, "".join(LINES)) if seen else Story()
    told.edit(0, "".join(LINES), after).look(31, now)
    assert value("edit_persistence", told) == pytest.approx(kept)


def test_two_lines_elsewhere_are_no_restored_region() -> None:
    other = "".join(f"else_{n} = other({n})\n" for n in range(20))
    told = Story().edit(0, "".join(LINES), "").look(31, other + "".join(LINES[:2]) + other)
    assert value("edit_persistence", told) == 1


def test_undo_and_redo_bring_back_who_wrote_it() -> None:
    told = Story().edit(0, BEFORE, AFTER).look(5, BEFORE).look(31, AFTER)
    assert value("edit_persistence", told, horizon_s=5) == 0
    assert value("edit_persistence", told, horizon_s=30) == 1


def test_the_agents_next_edit_tells_the_state_of_the_file() -> None:
    other = AFTER + "\n\nother = 1\n"
    told = Story().look(0, BEFORE).edit(1, BEFORE, AFTER).edit(32, AFTER, other)
    assert value("edit_persistence", told) == 1
    # A region tells it of an edit whose text lies within.
    told = Story().look(0, BEFORE).edit(1, BEFORE, AFTER).edit(32, LINE, LINE + "    x = 1\n")
    assert value("edit_persistence", told) == 1
    assert state(
        "edit_persistence",
        Story().look(0, BEFORE).edit(1, BEFORE, AFTER).edit(32, "    return 0\n", "    return 1\n"),
    ) == ("censored", "unobserved")


def test_edits_of_regions_of_a_file_that_nobody_has_seen() -> None:
    # Two regions, in the other order in the file than they were edited; later all of it is seen.
    told = (
        Story()
        .edit(0, "b = 2\n", "b = 2\nsecond_of_two = 1\n")
        .edit(1, "a = 1\n", "a = 1\nfirst_of_two = 1\n")
        .look(31, "x\na = 1\nfirst_of_two = 1\ny\nb = 2\nz\n")
    )
    # secondoftwo=1 is gone from the second place; firstoftwo=1 is there.
    assert value("edit_persistence", told, "e-2") == 1
    assert value("edit_persistence", told, "e-1") == 0


def test_a_move_that_the_next_edit_is_the_first_to_show_takes_nothing_away() -> None:
    lines = [f"statement_number_{n} = value_of_it({n})\n" for n in range(30)]
    mine = "".join(f"    written_line_{n} = compute_the_thing({n})\n" for n in range(8))
    wrote = "".join(lines[:5]) + mine + "".join(lines[5:])
    moved = "".join(lines[:25]) + mine + "".join(lines[25:])
    later = moved.replace("number_15 =", "number_xv =")
    story = Story().edit(0, "".join(lines), wrote).edit(20, moved, later).look(31, later)
    assert value("edit_persistence", story) == 1


def code(*names: str) -> str:
    return "".join(
        f"{name}_of_the_file = read_{name}({len(name)}, {name[::-1]})\n" for name in names
    )


HEAD, TAIL, AFAR = code("alpha", "beta"), code("gamma", "delta"), code("omega", "sigma", "theta")
WRITTEN = "".join(f"    {code(name)}" for name in ("first", "second", "third", "fourth"))


def wrote() -> Story:
    """In a file of which nobody has seen all."""
    return Story().edit(0, HEAD + TAIL, HEAD + WRITTEN + TAIL)


def test_a_region_that_moved_and_that_the_next_edit_is_the_first_to_show() -> None:
    there, later = AFAR + WRITTEN, AFAR + WRITTEN + "is_last = 1\n"
    now = f"import os\n{HEAD}{TAIL}# and more\n{later}"
    told = wrote().edit(20, there, later).look(31, now)
    assert value("edit_persistence", told) == 1
    assert value("line_survival", told) == 1
    # Of four lines the agent itself replaces one, and that is what it did, not the user.
    third = WRITTEN.splitlines(keepends=True)[2]
    again = there.replace(third, "    something_else()\n")
    told = wrote().edit(20, there, again).look(31, f"import os\n{HEAD}{TAIL}# and more\n{again}")
    assert value("edit_persistence", told) == 1
    assert 0.2 < value("self_rework", told) < 0.3


def test_a_region_around_which_others_changed_all_before_the_next_edit() -> None:
    there = AFAR + WRITTEN + code("kappa")
    told = wrote().edit(20, there, there + "is_last = 1\n")
    assert value("edit_persistence", told.look(31, f"import os\n{there}is_last = 1\nend\n")) == 1


def test_what_still_stands_where_it_was_written_is_not_taken_for_its_copy() -> None:
    copy = AFAR + WRITTEN
    both = f"import os\n{HEAD}{WRITTEN}{TAIL}# and more\n{copy}is_last = 1\n"
    one = f"import os\n{HEAD}{TAIL}# and more\n{copy}is_last = 1\n"
    told = wrote().edit(20, copy, copy + "is_last = 1\n").look(25, both).look(31, one)
    assert value("edit_persistence", told) == 0


def test_a_line_or_two_that_stand_in_another_region_too_are_chance() -> None:
    some = AFAR + "".join(WRITTEN.splitlines(keepends=True)[:2])
    told = wrote().edit(20, some, some + "is_last = 1\n")
    told.look(31, f"import os\n{HEAD}{TAIL}# and more\n{some}is_last = 1\n")
    assert value("line_survival", told) == 0
    assert value("edit_persistence", told) < 0.1


def test_what_a_region_held_before_the_edit_was_made_is_not_the_edits() -> None:
    copy = AFAR + WRITTEN
    told = Story().edit(0, code("kappa"), code("kappa", "lambda")).edit(1, copy, copy + "x = 1\n")
    told.edit(2, HEAD + TAIL, HEAD + WRITTEN + TAIL)
    now = f"import os\n{HEAD}{TAIL}# and more\n{copy}x = 1\n{code('kappa', 'lambda')}"
    assert value("line_survival", told.look(33, now), "e-3") == 0


def test_a_wider_region_takes_nothing_from_edits_elsewhere() -> None:
    wide = "".join([code("pi"), HEAD, WRITTEN, TAIL, code("rho")])
    told = wrote().edit(1, AFAR, AFAR + code("kappa", "lambda"))
    told.edit(2, wide, wide + code("tau"))
    told.look(
        33,
        "".join(["import os\n", wide, code("tau"), "# and more\n", AFAR, code("kappa", "lambda")]),
    )
    for edit in ("e-1", "e-2", "e-3"):
        assert value("edit_persistence", told, edit) == 1
