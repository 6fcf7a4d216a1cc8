"""What the published measures miss, and edit_persistence does not: one test for each."""

import pytest

from penstock_jobs.rewards.bucket import EditParameters
from tests.support.rewards.measures import MEASURES, state, value
from tests.support.rewards.stories import Story, bucket, found

GETTERS = [
    f"    def get_value_{name}(self):\n        return self.value_{name}\n"
    for name in ("alpha", "beta", "gamma", "delta", "omega", "sigma", "theta", "kappa")
]
CLASS = "class Values:\n" + "".join(GETTERS)
BODY = "\n".join(f"        step_{n} = self.run({n * 37}, verbose=True)" for n in range(9))
FUNCTION = f"    def work(self):\n{BODY}\n        return step_0\n"


def test_1_a_file_that_grows_around_the_edit() -> None:
    # Text typed at the edges joins the range, so the symmetric form falls; nothing was lost.
    grown = CLASS + "mine = 1; " + "x y z " * 40 + FUNCTION.rstrip() + " # mine" * 40 + "\n"
    told = Story().edit(0, CLASS, CLASS + FUNCTION).look(31, grown)
    assert value("four_gram_range", told) < 0.9
    assert value("edit_persistence", told) == 1


def test_2_text_that_moved_within_the_file() -> None:
    told = Story().edit(0, CLASS, CLASS + FUNCTION)
    told.look(31, CLASS.replace("\n", "\n" + FUNCTION, 1))
    assert value("four_gram_range", told) == 0
    assert value("edit_persistence", told) == 1
    assert value("line_survival", told) == 1


@pytest.mark.parametrize("seen_first", ["a.py", "b.py"])
def test_2_text_that_moved_to_another_file(seen_first: str) -> None:
    told = Story().edit(0, CLASS, CLASS + FUNCTION)
    texts = {"a.py": CLASS, "b.py": "import os\n\n" + FUNCTION}
    for at, path in enumerate(sorted(texts, reverse=seen_first == "b.py")):
        told.look(31 + at / 2, texts[path], path)
    assert value("four_gram_range", told) == 0
    assert value("edit_persistence", told) == 1


@pytest.mark.parametrize("seen_first", ["a.py", "b.py"])
def test_2_a_renamed_file(seen_first: str) -> None:
    told = Story().edit(0, CLASS, CLASS + FUNCTION)
    texts = {"a.py": None, "b.py": CLASS + FUNCTION}
    for at, path in enumerate(sorted(texts, reverse=seen_first == "b.py")):
        told.look(31 + at / 2, texts[path], path)
    assert value("four_gram_range", told) == 0
    assert value("edit_persistence", told) == 1


@pytest.mark.parametrize("emptied_first", [True, False])
def test_2_a_file_that_the_agent_renamed(emptied_first: bool) -> None:
    def told(now: str) -> Story:
        whole = CLASS + FUNCTION
        own = Story().edit(0, CLASS, whole)
        steps = [(whole, "", "a.py"), (None, whole, "b.py")]
        for at, step in enumerate(steps if emptied_first else steps[::-1]):
            own.edit(1 + at / 2, *step)
        return own.look(35, now, "b.py").look(35.5, "", "a.py")

    assert value("edit_persistence", told(CLASS + FUNCTION)) == 1
    # What the user takes out of the new file was the first edit's, and no rework of the agent's.
    assert value("edit_persistence", told(CLASS)) == 0


@pytest.mark.parametrize(
    "now",
    [
        (CLASS + FUNCTION).replace("    ", "\t"),
        (CLASS + FUNCTION).replace("\n", "\r\n"),
        (CLASS + FUNCTION).replace(", verbose", ",\n            verbose"),
    ],
)
def test_3_formatting(now: str) -> None:
    told = Story().edit(0, CLASS, CLASS + FUNCTION).look(31, now)
    assert value("four_gram_range", told) < 0.95
    assert value("edit_persistence", told) == 1


def test_6_two_edits_over_the_same_lines() -> None:
    # The first writes a call, the second puts an argument in; the user takes only that out.
    one = CLASS + "result = compute(alpha_value)\n"
    two = CLASS + "result = compute(alpha_value, retries_max=5)\n"
    told = Story().edit(0, CLASS, one).edit(1, one, two).look(32, one)
    assert value("edit_persistence", told, "e-1") == 1
    assert value("edit_persistence", told, "e-2") == 0
    # By ranges the two are not told apart: what the second put in the middle counted as loss.
    still = Story().edit(0, CLASS, one).edit(1, one, two).look(32, two)
    assert value("four_gram_range", still, "e-1") < 1
    assert value("edit_persistence", still, "e-1") == 1


def test_7_a_workspace_that_is_gone() -> None:
    told = Story().edit(0, CLASS, CLASS + FUNCTION).event(20, "session_end")
    assert state("edit_persistence", told) == ("censored", "workspace_gone")
    told = Story().edit(0, CLASS, CLASS + FUNCTION).event(20, "session_end").look(300, "", "b.py")
    assert state("edit_persistence", told) == ("censored", "unobserved")


def test_7_text_in_a_file_at_which_nobody_looked() -> None:
    told = Story().edit(0, CLASS, CLASS + FUNCTION)
    told.look(10, CLASS).look(10.5, FUNCTION, "b.py").look(31, CLASS)
    assert state("edit_persistence", told) == ("censored", "path_lost")


def test_8_one_generated_file_does_not_drown_careful_edits() -> None:
    # Ten edits of 25 characters are reverted, a generated file of 6,250 persists.
    told = Story().turn(-1)
    for n in range(10):
        told.edit(n / 10, "# careful\n", "# careful\n" + "c" * 25 + "\n", f"{n}.py")
    told.edit(1, None, "".join("g" * 24 + f"{n % 9}\n" for n in range(250)), "generated.py")
    for n in range(10):
        told.look(31 + n / 10, "# careful\n", f"{n}.py")
    told.look(32, "".join("g" * 24 + f"{n % 9}\n" for n in range(250)), "generated.py")
    rows = MEASURES["edit_persistence"](bucket(told), EditParameters())
    # √6250 / (√6250 + 10 √25); by characters it were 6250 / 6500 = 0.96.
    expected = 6250**0.5 / (6250**0.5 + 50)
    assert found(rows, "1", 30, "turn")["value"] == pytest.approx(expected)
    assert found(rows, "s-1", 30, "session")["value"] == pytest.approx(expected)
    by_characters = MEASURES["edit_persistence"](bucket(told), EditParameters(weight_exponent=1))
    assert found(by_characters, "1", 30, "turn")["value"] == pytest.approx(6250 / 6500)
