"""Where text and ranges are after a change, case by case."""

from penstock_jobs.rewards.texts.changes import Block, TextChange
from penstock_jobs.rewards.texts.provenance import (
    FileState,
    KnownFile,
    OwnerRun,
    after_change,
    first_state,
    shifted,
)

RANGE = (1, 0)


def carried(
    place: tuple[int, int], kept: list[Block], text: str, before: str = "abcdef"
) -> tuple[int, int]:
    """Where a range of the text before is in the text after, of which these blocks were kept."""
    state = FileState(before, [OwnerRun(len(before), 1, 0)], {RANGE: place})
    after = after_change(state, text, TextChange(kept, []), {1}, whole=True)
    return after.ranges[RANGE]


def test_a_range_before_the_change_stays() -> None:
    assert carried((0, 2), [Block(0, 0, 4), Block(5, 5, 1)], "abcdXf") == (0, 2)


def test_a_range_behind_the_change_goes_along() -> None:
    assert carried((3, 5), [Block(0, 0, 1), Block(1, 3, 5)], "aXXbcdef") == (5, 7)


def test_what_is_put_at_the_edge_of_a_range_joins_it() -> None:
    assert carried((0, 0), [Block(0, 1, 6)], "Xabcdef") == (0, 1)
    assert carried((2, 4), [Block(0, 0, 4), Block(4, 5, 2)], "abcdXef") == (2, 5)
    assert carried((2, 4), [Block(0, 0, 2), Block(2, 3, 4)], "abXcdef") == (2, 5)


def test_a_range_whose_text_is_gone_is_what_stands_in_its_place() -> None:
    assert carried((2, 4), [Block(0, 0, 2), Block(4, 3, 2)], "abXef") == (2, 3)
    assert carried((2, 4), [], "XY") == (0, 2)


def test_ranges_of_edits_that_are_over_are_dropped() -> None:
    state = FileState("ab", [OwnerRun(2, 1, 0)], {RANGE: (0, 1)})
    change = TextChange([Block(0, 0, 2)], [])
    assert after_change(state, "ab", change, set(), whole=True).ranges == {}


def test_a_change_of_a_region_is_one_of_the_text_around_it() -> None:
    inner = TextChange([Block(1, 2, 3)], [Block(0, 5, 1)])
    assert shifted(inner, 10, 4, 6, 7) == TextChange(
        [Block(0, 0, 10), Block(11, 12, 3), Block(14, 16, 7)], [Block(10, 15, 1)]
    )
    assert shifted(inner, 0, 4, 6, 0) == TextChange([Block(1, 2, 3)], [Block(0, 5, 1)])


def test_a_file_is_known_in_whole_where_its_first_part_is() -> None:
    for whole in (True, False):
        file = KnownFile("a.py", [first_state("x", whole=whole)], set())
        assert file.whole is whole
