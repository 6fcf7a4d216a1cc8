"""Cases of real sessions that are easily read wrongly."""

import json

import pytest

from tests.support.rewards.measures import MEASURES, PARAMETERS, state, value
from tests.support.rewards.stories import Story, bucket, found

PERSISTENCE = "edit_persistence"
HEAD = "import sums\nimport taxes\n\nRATES = sums.load('rates.csv')\n\n\n"
OTHER = "def price_of(item):\n    return item.price * item.count\n\n\n"
LINES = [f"    total_{n} = sums.add(prices[{n}], taxes[{n}])\n" for n in range(12)]
FUNCTION = "def total(prices, taxes):\n" + "".join(LINES) + "    return total_11\n"
FILE = HEAD + OTHER


IMPORTS = "import taxes\nfrom shop.taxes.vat import vat_of_prices\nfrom shop import prices\n"


def changed_by_others() -> str:
    """Each third line of the agent's is another one, so that 0.69 of its characters stand."""
    text = FUNCTION
    for n in range(0, 12, 3):
        text = text.replace(LINES[n], f"    total_{n} = the_users_own_way_of_adding_it({n}, up)\n")
    return text


STILL = 0.69


def test_an_edit_that_shows_the_whole_file_after_others_changed_it() -> None:
    """The file was never seen: the earlier edit was lost, for the next one showed another text."""
    story = Story().edit(0, HEAD, HEAD + FUNCTION)
    now = HEAD.replace("rates", "all") + changed_by_others()
    story.edit(10, now, now + OTHER).look(30, now + OTHER).look(41, now + OTHER)
    assert value(PERSISTENCE, story) == pytest.approx(STILL, abs=0.02)
    assert value(PERSISTENCE, story, "e-2") == 1


def test_an_edit_of_the_whole_file_that_others_changed_is_valid() -> None:
    """The file was known as a whole: the next edit was invalid."""
    story = Story().look(-1, HEAD).edit(0, HEAD, HEAD + FUNCTION)
    now = HEAD.replace("rates", "all") + changed_by_others() + OTHER
    story.edit(10, now, now + "TOTAL = total(RATES)\n")
    story.look(30, now + "TOTAL = total(RATES)\n").look(41, now)
    assert value(PERSISTENCE, story) == pytest.approx(STILL, abs=0.02)
    assert value(PERSISTENCE, story, "e-2") == 0


def test_a_region_that_is_not_there_stays_a_mismatch() -> None:
    story = Story().look(-1, HEAD + OTHER + FUNCTION).edit(0, FUNCTION.upper(), "x = 1\n")
    assert state(PERSISTENCE, story) == ("invalid", "before_mismatch")
    # Most of the file, but without its beginning: the edit says nothing about that.
    region = changed_by_others()
    file = HEAD + OTHER + OTHER.replace("price", "weight") + FUNCTION
    story = Story().look(-1, file).edit(0, region, region + "x = 1\n")
    assert state(PERSISTENCE, story) == ("invalid", "before_mismatch")


def test_a_region_beside_one_that_is_most_of_the_file() -> None:
    """What stands outside of the larger region is looked for there."""
    story = Story().edit(0, "import taxes\n", IMPORTS)
    story.edit(1, FUNCTION, FUNCTION + OTHER)
    text = "import sums\n" + IMPORTS + FUNCTION + OTHER
    assert value(PERSISTENCE, story.look(30, text)) == 1
    text = text.replace("shop import prices", "os import path")
    late = Story().edit(0, "import taxes\n", IMPORTS)
    late.edit(1, FUNCTION, FUNCTION + OTHER).look(30, text)
    assert 0.5 < value(PERSISTENCE, late) < 1


def test_an_edit_weighs_by_what_its_agent_left_of_it() -> None:
    """All but a bracket of the first edit is written anew, and that counted as a whole edit."""
    story = Story().turn(-1).edit(0, "", "total = sum(prices[0], prices[1], prices[2])\n")
    story.edit(5, "total = sum(prices[0], prices[1], prices[2])\n", "vat(19)\n")
    story.look(36, "")
    rows = MEASURES[PERSISTENCE](bucket(story), PARAMETERS)
    first, second = (found(rows, edit, 30) for edit in ("e-1", "e-2"))
    assert first["weight"] < 2 < second["weight"]
    kept = Story().edit(0, "", FUNCTION).edit(5, FUNCTION, HEAD + ")\n" + LINES[11])
    kept.look(30, HEAD + ")\n" + LINES[11])
    rows = MEASURES[PERSISTENCE](bucket(kept), PARAMETERS)
    # The weight is the square root of the characters: of the line that is left, and a few others.
    whole, left = (len("".join(text.split())) for text in (FUNCTION, LINES[11]))
    assert found(rows, "e-1", 0)["weight"] == pytest.approx(whole**0.5)
    assert found(rows, "e-1", 30)["weight"] == pytest.approx(left**0.5, rel=0.2)
    rows = MEASURES["line_survival"](bucket(kept), PARAMETERS)
    assert found(rows, "e-1", 30)["weight"] == pytest.approx(1)


@pytest.mark.parametrize("seconds", [3, 400])
def test_a_block_that_is_copied_before_its_original_goes_has_moved(seconds: int) -> None:
    story = Story().edit(0, FILE, FILE + FUNCTION)
    story.look(5, HEAD + FUNCTION + OTHER + FUNCTION).look(5 + seconds, HEAD + FUNCTION + OTHER)
    horizon_s = 30 if seconds == 3 else 600
    story.look(horizon_s + 1, HEAD + FUNCTION + OTHER)
    assert value(PERSISTENCE, story, horizon_s=horizon_s) == 1


def test_a_copy_does_not_bring_back_what_stood_there_before() -> None:
    """The agent wrote what was in the file anyway; others take the agent's away."""
    story = Story().look(-1, FILE).edit(0, FILE, FILE + OTHER).look(30, FILE)
    assert value(PERSISTENCE, story) == 0
    # A copy counts once, and others' changes of the copy change nothing.
    story = Story().edit(0, FILE, FILE + FUNCTION).look(5, FUNCTION + FILE + FUNCTION)
    story.look(30, FUNCTION.replace("prices", "p") + FILE + FUNCTION)
    assert value(PERSISTENCE, story) == 1


@pytest.mark.parametrize("mark_at", ["before", "after", "look"])
def test_a_byte_order_mark_is_no_change(mark_at: str) -> None:
    marks = {name: "\ufeff" if name == mark_at else "" for name in ("before", "after", "look")}
    story = Story().look(-1, FILE)
    story.edit(0, marks["before"] + FILE, marks["after"] + FUNCTION + FILE)
    story.look(30, marks["look"] + FUNCTION + FILE)
    assert value(PERSISTENCE, story) == 1
    assert value("line_survival", story) == 1
    alone = Story().look(-1, FILE).edit(0, FILE, "\ufeff" + FILE).look(30, FILE)
    assert state(PERSISTENCE, alone) == ("invalid", "nothing_written")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("        total += price", "         += price"),
        ("    for price in prices:\n        total ", "     "),
        ("    total += price  # sum\n", "    "),
        ("return total", "return "),
    ],
)
def test_a_deletion_at_the_edge_of_a_region(before: str, after: str) -> None:
    """Only the region is known, and a space is left: the rest of the file was taken for what came
    back."""
    file = "def total(prices):\n    total = 0\n    " + before + "\n    print(price, total)\n"
    story = Story().edit(0, before, after).look(30, file.replace(before, after))
    assert value(PERSISTENCE, story) == 1
    back = Story().edit(0, before, after).look(30, file)
    assert value(PERSISTENCE, back) < 0.5


def test_a_deletion_within_a_line_that_others_changed() -> None:
    story = Story().edit(0, "        total", "         ")
    story.look(30, "def f():\n    total = 0\n          += 1\n    return total\n")
    assert value(PERSISTENCE, story) == 1


def test_a_commit_shows_files_with_marks_and_other_paths() -> None:
    files = [{"path": "./a.py", "text": "\ufeff" + FILE + FUNCTION}]
    story = (
        Story().edit(0, FILE, FILE + FUNCTION).event(30, "vcs_commit", json.dumps({"files": files}))
    )
    assert value(PERSISTENCE, story) == 1


@pytest.mark.parametrize("deleted_first", [True, False])
def test_what_the_agent_moves_to_another_file_is_not_its_own(deleted_first: bool) -> None:
    """A file full of others' code made the edit heavy, and the user's changes of it made it bad."""
    story = Story().turn(-2).look(-1, FILE + FUNCTION, "a.py")
    mine = "def more(x):\n    return x + 1\n"
    if deleted_first:
        story.edit(0, FILE + FUNCTION, FILE, "a.py").edit(1, "", FUNCTION + mine, "b.py")
    else:
        story.edit(0, "", FUNCTION + mine, "b.py").edit(1, FILE + FUNCTION, FILE, "a.py")
    story.look(35, mine, "b.py").look(35, FILE, "a.py")
    edit = "e-2" if deleted_first else "e-1"
    assert value(PERSISTENCE, story, edit) == 1
    rows = MEASURES["line_survival"](bucket(story), PARAMETERS)
    assert found(rows, edit, 30)["weight"] == pytest.approx(2**0.5)
    # The move alone writes nothing.
    story = Story().turn(-2).look(-1, FILE + FUNCTION, "a.py")
    story.edit(0, "", FUNCTION, "b.py").edit(1, FILE + FUNCTION, FILE, "a.py")
    story.look(35, FUNCTION, "b.py").look(35, FILE, "a.py")
    assert state(PERSISTENCE, story) == ("invalid", "nothing_written")


def test_a_line_that_the_agent_made_from_others_text() -> None:
    before = "def total(prices, taxes): return sums(prices) + sums(taxes)\n"
    after = "def total(prices, taxes):\n    everything = 1\n    return sums(prices) + sums(taxes)\n"
    story = Story().edit(0, before, after).look(30, after)
    assert value("line_survival", story) == 1
    story = Story().edit(0, before, after).look(30, after.replace("taxes):", "all_taxes):"))
    assert value("line_survival", story) == pytest.approx(2 / 3)
    story = Story().edit(0, before, after).edit(5, after, after.replace("taxes):", "all_taxes):"))
    story.look(30, after.replace("taxes):", "all_taxes):"))
    rows = MEASURES["line_survival"](bucket(story), PARAMETERS)
    assert found(rows, "e-1", 30)["value"] == 1
    assert found(rows, "e-1", 30)["weight"] == pytest.approx(2**0.5)
