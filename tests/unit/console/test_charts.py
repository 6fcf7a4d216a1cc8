"""Charts: what is drawn where, and that no text leaves its place."""

import re
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from penstock.doors.console.charts import (
    Bar,
    Dot,
    Interval,
    Scale,
    Series,
    bar_chart,
    histogram,
    interval_chart,
    line_chart,
    rounded_scale,
    scatter_chart,
    share_bar,
)

HOSTILE = '"><script>alert(1)</script>'
DAY = [(1_795_219_200.0 + 3600 * hour, float(hour % 5)) for hour in range(24)]

CHARTS = {
    "line": line_chart(
        [Series(HOSTILE, DAY), Series("b", DAY)], title=HOSTILE
    ),
    "area": line_chart([Series("", DAY)], title="a", area=True),
    "bar": bar_chart([Bar(HOSTILE, 3, href="/x?a=1&b=2"), Bar("b", -1)], title=HOSTILE),
    "histogram": histogram([(0, 1, 4), (1, 2, 0), (2, 3, 7)], title=HOSTILE),
    "interval": interval_chart(
        [
            Interval(HOSTILE, -0.1, 0.02, 0.1, margin=-0.05, note=HOSTILE),
            Interval("b", None, None, None),
        ],
        title=HOSTILE,
    ),
    "scatter": scatter_chart(
        [Dot(HOSTILE, 1, 2, on_frontier=True), Dot("b", 2, 3)],
        title=HOSTILE, x_label=HOSTILE, y_label=HOSTILE,
    ),
    "share": share_bar([Bar(HOSTILE, 3, "good"), Bar("b", 1)], title=HOSTILE),
    "nothing": line_chart([], title="none"),
}  # fmt: skip


def test_the_axis_of_means_fits_them_and_that_of_differences_has_zero() -> None:
    rows = [Interval("a", 0.62, 0.63, 0.64), Interval("b", 0.65, 0.66, 0.67)]
    drawn = interval_chart(rows, title="t", means=True)
    apart = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawn)]
    drawn = interval_chart(rows, title="t")
    near = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawn)]
    assert apart[1] - apart[0] > 5 * (near[1] - near[0])
    assert 'class="axis"' in drawn


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_well_formed_and_quotes_what_it_was_given(name: str) -> None:
    chart = CHARTS[name]
    assert isinstance(chart, Markup)
    assert "<script" not in chart
    assert " style=" not in chart  # the policy would refuse it
    svg = ElementTree.fromstring(f"<div>{chart}</div>").find("svg")
    assert svg is not None
    assert svg.get("role") == "img"
    assert svg.find("title") is not None
    numbers = re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]*)"', chart)
    assert all(float(number) == float(number) for number in numbers)


def test_a_gap_breaks_the_line() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 1.0), (4.0, 3.0)]
    assert line_chart([Series("a", points)], title="t").count("<polyline") == 2


def test_marks_stand_where_their_values_are() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(at) for at in (0, 5, 10)] == [100, 150, 200]
    assert Scale(3, 3, 0, 10)(3) == 5


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([1, 97], 0, 100), ([-0.04, 0.11], -0.05, 0.15), ([0], 0, 1), ([7], 0, 8), ([], 0, 1)],
)
def test_a_scale_ends_at_round_numbers(values: list[float], low: float, high: float) -> None:
    scale = rounded_scale(values, 0, 100, zero=True)
    assert scale.low == pytest.approx(low)
    assert scale.high == pytest.approx(high)
    # Equal means of many sessions differ by the rounding of sums.
    assert rounded_scale([7, 7 + 1e-13], 0, 100, zero=False).high == 8


def test_ticks_are_round() -> None:
    assert Scale(0, 100, 0, 1).ticks() == [0, 25, 50, 75, 100]
    assert Scale(0, 0.07, 0, 1).ticks() == [0, 0.02, 0.04, 0.06]
    assert Scale(5, 5, 0, 1).ticks() == [5]
