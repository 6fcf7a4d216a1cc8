"""What counts as reached, and how spreads are told."""

from bench.figures import Goal, spread


def test_a_bound_itself_is_reached() -> None:
    assert Goal(what="share", at_least=0.5).figure(0.5).reached
    assert Goal(what="p99", at_most=15, unit=" ms").figure(15).reached


def test_a_figure_beyond_its_bound_is_missed_and_says_the_goal() -> None:
    figure = Goal(what="p99", at_most=15, unit=" ms").figure(15.5, "50 watchers")
    assert (figure.what, figure.value, figure.goal) == ("p99, 50 watchers", "15.50 ms", "≤ 15 ms")
    assert not figure.reached


def test_of_rounds_the_median_counts() -> None:
    figure = Goal(what="ratio", at_least=2, unit=" ×").figure_of_rounds([1.0, 2.5, 9.0])
    assert figure.reached
    assert figure.value == "2.50 × (1.00 to 9.00)"


def test_a_spread_has_no_more_digits_than_its_size_deserves() -> None:
    assert spread([1234.5, 1000.0, 0.0123]) == "1,000 (0.0123 to 1,234)"
