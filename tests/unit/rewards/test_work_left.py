"""work_left and taken_back: what others had to do counts as it is, whatever stands beside it.

A line of LINES has 20 characters without white space; scale_chars is 20 here: `left(n)` is worth
what n lines that others had to do leave of 1."""

from copy import deepcopy
from math import exp

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.rewards.definition import parse_definition
from penstock_jobs.rewards.measures.work_left import WorkParameters, taken_back, work_left
from penstock_jobs.rewards.texts.places import PlaceWeights
from tests.support.rewards.stories import LATER_US, Row, Story, bucket

PARAMETERS = WorkParameters(horizons_s=(0, 600), scale_chars=20)
WORDS = ("alpha", "bravo", "delta", "gamma", "omega", "sigma")
OTHERS = ("kiwis", "lemon", "mango", "olive", "peach", "plums")
HEAD = "".join(f"import module_{n}\n" for n in range(30))


WRITTEN = "".join(f"{word * 3}()=>{at}\n" for at, word in enumerate(WORDS))
ANEW = "".join(f"{at}<-[]{word * 3}\n" for at, word in enumerate(OTHERS))


def left(lines: float) -> float:
    return exp(-(lines**1.4))


def rows(story: Story, request: int = 1, parameters: WorkParameters = PARAMETERS) -> list[Row]:
    """Of a request at 600 s: work_left and taken_back. The user goes on to something else later."""
    found, told = [], deepcopy(story)
    if not told.rows["turns"]:
        told.turn(-3)
    told.turn(900, "Great, thanks! Next, add a button that exports the table as CSV.")
    for reward in (work_left, taken_back):
        table = reward(bucket(told), parameters).to_pylist()
        (row,) = [
            row
            for row in table
            if (row["target_kind"], row["target_id"], row["horizon_s"])
            == ("request", str(request), 600)
        ]
        found.append(row)
    return found


def values(story: Story, request: int = 1, parameters: WorkParameters = PARAMETERS) -> list[float]:
    found = [row["value"] for row in rows(story, request, parameters)]
    assert None not in found, rows(story, request, parameters)
    return found


def added(said: str) -> Story:
    """The agent adds six lines, as asked, and the user answers."""
    told = Story().look(-2, HEAD).turn(-1, "Add the six lines to the module.")
    return told.edit(0, HEAD, HEAD + WRITTEN).turn(10, said)


def wrote(now: str, text: str = WRITTEN) -> Story:
    return Story().look(-1, HEAD).edit(0, HEAD, HEAD + text).look(601, HEAD + now)


def test_what_stays_leaves_nothing_to_do() -> None:
    assert values(wrote(WRITTEN)) == [1, 0]
    assert values(wrote(WRITTEN.replace("(", "( "))) == [1, 0]


def test_what_is_taken_back_weighs_what_it_was() -> None:
    assert values(wrote("")) == pytest.approx([0, left(6) - 1])
    one = WRITTEN.replace(WRITTEN.splitlines(keepends=True)[0], "")
    assert values(wrote(one)) == pytest.approx([left(1), left(1) - 1])


def test_a_share_bounds_what_little_work_is_worth() -> None:
    """Of a line of 20 characters 5 are there, and 15 by others."""
    first = WRITTEN.splitlines(keepends=True)[0]
    told = wrote(first + "kiwis-lemon-mango;\n", first)
    assert values(told)[0] == pytest.approx(min(20 / 38, left(18 / 20)))


def test_what_is_replaced_counts_once() -> None:
    assert values(wrote(ANEW))[0] == pytest.approx(0, abs=1e-4)


def test_a_part_of_the_task_is_worth_what_it_left_to_do() -> None:
    """One of six lines is good, and the user writes another: in the place of the edit, or
    elsewhere in the file, where half of it counts in the share."""
    first, rest = WRITTEN.splitlines(keepends=True)[0], ANEW.splitlines(keepends=True)[0]
    beside = Story().look(-1, HEAD).edit(0, HEAD, HEAD + first).look(601, HEAD + first + rest)
    elsewhere = Story().look(-1, HEAD).edit(0, HEAD, HEAD + first).look(601, rest + HEAD + first)
    assert values(beside) == pytest.approx([left(1), 0])
    assert values(elsewhere) == pytest.approx([left(1), 0])
    few = Story().look(-1, HEAD).edit(0, HEAD, HEAD + "few()\n")
    assert values(few.look(601, rest + HEAD + "few()\n"))[0] == pytest.approx(5 / (5 + 10))


def test_what_nobody_saw_before_is_unknown() -> None:
    """The agent shows one line of the file; the user may have written the others."""
    first = WRITTEN.splitlines(keepends=True)[0]
    region = Story().edit(0, "import module_9\n", "import module_9\n" + first)
    row, _ = rows(region.look(601, HEAD + first + ANEW))
    assert (row["state"], row["reason"]) == ("censored", "unobserved")
    seen = Story().edit(0, "import module_29\n", "import module_29\n" + first)
    assert values(seen.look(5, HEAD + first).look(601, HEAD + first))[0] == 1


@pytest.mark.parametrize(
    "now",
    [
        HEAD + WRITTEN[:21] + ANEW,
        HEAD + WRITTEN[:21] + "x = 1\n" + ANEW,
        ANEW + HEAD + WRITTEN[:21],
        HEAD * 9 + WRITTEN[:21] + HEAD * 9,
    ],
)
def test_text_around_what_nobody_had_seen_may_be_old(now: str) -> None:
    """It was no work left, and the edit was perfect."""
    seen = Story().look(-1, HEAD).edit(0, HEAD, HEAD + WRITTEN[:21]).look(601, now)
    assert values(seen)[0] < 1
    unseen = Story().edit(0, HEAD, HEAD + WRITTEN[:21]).look(601, now)
    row, _ = rows(unseen)
    assert (row["state"], row["reason"]) == ("censored", "unobserved")


def test_text_within_a_known_region_is_new() -> None:
    now = HEAD[:300] + WRITTEN[:21] + ANEW + HEAD[300:]
    written = HEAD[:300] + WRITTEN[:21] + HEAD[300:]
    unseen = Story().edit(0, HEAD, written).look(601, now)
    seen = Story().look(-1, HEAD).edit(0, HEAD, written).look(601, now)
    assert values(unseen) == values(seen)
    assert values(seen)[0] < 1


def test_a_place_weighs_as_the_parameters_say() -> None:
    notes = "It seems that this is fine.\n" * 9
    told = Story().edit(0, None, notes, "docs/notes.md").look(601, notes, "docs/notes.md")
    assert values(told) == [0, 0]
    whole = WorkParameters(horizons_s=(0, 600), scale_chars=20, places=PlaceWeights(docs=1.0))
    assert values(told, parameters=whole) == [1, 0]
    asked = Story().turn(-1, "Document in docs/notes.md how the retries work.")
    asked.edit(0, None, notes, "docs/notes.md").look(601, notes, "docs/notes.md")
    assert values(asked) == [1, 0]
    gone = Story().edit(0, None, notes, "docs/notes.md").look(601, "", "docs/notes.md")
    assert 0 > values(gone)[1] > values(gone, parameters=whole)[1]


def test_a_definition_sets_the_weights_of_places() -> None:
    text = 'name = "mine"\n[[reward]]\nname = "work_left"\nweight = 1.0\n'
    plain = parse_definition(text, "mine")
    docs = parse_definition(text + "parameters = { places = { docs = 1.0 } }\n", "mine")
    assert docs.terms[0].parameters.places == PlaceWeights(docs=1.0)
    assert docs.version != plain.version
    for places, why in (("{ doc = 1.0 }", "doc"), ("{ docs = 2.0 }", "from 0 to 1")):
        with pytest.raises(InvalidInput, match=why):
            parse_definition(f"{text}parameters = {{ places = {places} }}\n", "mine")


def test_comments_alone_are_no_work_and_are_lost_lightly() -> None:
    comments = "# think\n" * 20
    assert values(wrote(comments, comments)) == [0, 0]
    told = Story().edit(0, HEAD, HEAD + WRITTEN + comments).look(601, HEAD + WRITTEN)
    assert values(told)[1] == pytest.approx(left(0.1 * 20 * 6 / 20) - 1)


def test_what_the_agent_itself_undid_is_worth_nothing() -> None:
    to_and_fro = Story().edit(0, HEAD, HEAD + WRITTEN).edit(1, HEAD + WRITTEN, HEAD)
    assert values(to_and_fro.look(602, HEAD)) == [0, 0]
    known = Story().look(-1, HEAD + ANEW).edit(0, HEAD + ANEW, HEAD + WRITTEN)
    assert values(known.edit(1, HEAD + WRITTEN, HEAD + ANEW).look(602, HEAD + ANEW)) == [0, 0]


def test_what_the_agent_does_anew_in_its_request_was_not_left_to_others() -> None:
    told = added("Use arrows instead.").edit(11, HEAD + WRITTEN, HEAD + ANEW)
    assert values(told.look(612, HEAD + ANEW))[1] == 0


def test_work_that_begins_with_the_next_request_was_not_left_to_do() -> None:
    """Neither what its agent writes nor what the user does later counts, after a look."""
    more = WRITTEN[:21] + ANEW + WRITTEN[21:]
    told = added("Great, thanks! Next, add a button that exports the table as CSV.")
    alone = deepcopy(told).edit(12, HEAD + WRITTEN, HEAD + more).look(612, HEAD + more)
    told.look(11, HEAD + WRITTEN).edit(12, HEAD + WRITTEN, HEAD + more).look(612, HEAD)
    assert values(told, 1) == [1, 0]
    assert values(told, 2)[0] == 0
    assert [values(alone, 1)[0], values(alone, 2)[0]] == [1, 1]


@pytest.mark.parametrize(("said", "worth"), [("haha", 0), ("Thanks, that works.", 1)])
def test_what_users_add_after_praise_was_not_left_to_do(said: str, worth: float) -> None:
    told = added(said).look(601, HEAD + WRITTEN + ANEW)
    assert values(told)[0] == pytest.approx(worth, abs=1e-4)


def test_a_deletion_that_came_back_was_not_wanted() -> None:
    told = Story().look(-1, HEAD + WRITTEN).edit(0, HEAD + WRITTEN, HEAD)
    assert values(deepcopy(told).look(601, HEAD)) == [0.5, 0]
    assert values(told.look(601, HEAD + WRITTEN)) == pytest.approx([0, left(6) - 1])


def test_a_file_that_is_gone_was_taken_back() -> None:
    assert values(Story().edit(0, None, WRITTEN).look(601, None))[0] == 0


def test_states_are_those_of_the_edits() -> None:
    told = Story().edit(0, HEAD, HEAD + WRITTEN)
    found = {(row["state"], row["reason"]) for row in rows(told)}
    assert found == {("censored", "unobserved")}
    table = work_left(bucket(told, as_of_us=LATER_US - 86_399 * 1_000_000), PARAMETERS)
    late = [row for row in table.to_pylist() if row["horizon_s"] == 600]
    assert {row["state"] for row in late} == {"pending"}
    assert all(row["due_us"] for row in late)
    assert rows(told.look(601, HEAD, branch_changed=True))[0]["reason"] == "branch_changed"


def test_a_request_of_which_less_than_half_was_seen_is_unknown() -> None:
    def told(seen: int) -> Story:
        story = Story().turn(-1, "Write the three modules.")
        for number in range(3):
            story.edit(number, None, WRITTEN, f"{number}.py")
        for number in range(seen):
            story.look(610 + number, WRITTEN, f"{number}.py")
        return story

    assert rows(told(1))[0]["reason"] == "unobserved"
    assert values(told(2))[0] == 1


def test_the_last_judgement_bounds_work() -> None:
    """Nobody takes back what the user rejects: the user went away."""
    told = added("No, that is completely wrong. It is broken now.").look(611, HEAD + WRITTEN)
    assert values(told) == [0, 0]
    told.turn(620, "Perfect now, thanks!")
    assert values(told) == pytest.approx([120 / 200, 0])


def test_a_session_is_the_mean_of_its_requests_however_much_each_wrote() -> None:
    told = Story().look(-2, HEAD).turn(-1, "Add the lines to the module.")
    told.edit(0, HEAD, HEAD + WRITTEN).look(5, HEAD)
    told.turn(10, "Great, thanks! Next, write the numbers into src/b.py, all of them.")
    told.edit(11, None, "y = 2\n" * 500, "src/b.py")
    told.look(601, HEAD).look(612, "y = 2\n" * 500, "src/b.py")
    table = [row for row in work_left(bucket(told), PARAMETERS).to_pylist() if row["horizon_s"]]
    parts = [(row["weight"], row["value"]) for row in table if row["target_kind"] == "request"]
    (session,) = [row for row in table if row["target_kind"] == "session"]
    assert [value for _, value in parts] == [0, 1]
    assert session["value"] == pytest.approx(parts[1][0] / (parts[0][0] + parts[1][0]))
