"""Numbers, times and addresses as pages write them."""

import re

import pytest

from penstock.doors.console import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (12_345, "12.3 k"), (4.2e6, "4.2 M"), (None, "–"), (0.1234, "0.123")],
)
def test_short(value: float | None, text: str) -> None:
    assert figures.short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12 ms"), (3.25, "3.25 s"), (90, "1 min 30 s"), (3600, "1 h"),
        (12_000, "3 h 20 min"), (200_000, "2 d 7 h"), (None, "–"),
    ],
)  # fmt: skip
def test_durations_have_two_units(seconds: float | None, text: str) -> None:
    assert figures.duration(seconds) == text


def test_times_are_said_from_now() -> None:
    assert ">5 min ago<" in figures.ago(1_795_219_200_000_000, 1_795_219_500_000_000)
    assert ">2026-11-21 00:00<" in figures.ago(1_795_219_200_000_000, 1_795_219_000_000_000)
    assert ">2026-11-21 00:00<" in figures.moment(1_795_219_200_000_000)


def test_addresses_quote_what_others_named() -> None:
    assert figures.url("/sessions", q="a b&c", since="", project=None) == "/sessions?q=a+b%26c"
    assert figures.part("a/<b>?#") == "a%2F%3Cb%3E%3F%23"


def test_words_are_marked_and_the_rest_is_escaped() -> None:
    assert figures.marked("<b>Fix it</b>", "fix") == "&lt;b&gt;<mark>Fix</mark> it&lt;/b&gt;"
    assert figures.marked("<b>", "") == "&lt;b&gt;"


def test_markdown_is_rendered_and_leads_nowhere() -> None:
    shown = str(
        figures.markdown(
            "# Plan\n- **one**\n\n| a | b |\n|:--|--:|\n| 1 | 2 |\n\n"
            "<script>x</script> [a](javascript:x) ![i](http://evil) <http://evil> &lt;\n\n"
            "[ref]: http://evil\n```<b>\n<img src=x>\n```"
        )
    )
    assert '<p class="heading">Plan</p>' in shown
    assert "<strong>one</strong>" in shown
    assert "<td>2</td>" in shown
    assert "[a](javascript:x) ![i](http://evil)" in shown
    assert not re.search(r"<(script|img|a|h1|b)\b|style=|href=|src=\"", shown)
    assert "[ref]: http://evil" in shown
    assert figures.markdown("plain words, as they are") is None
    assert figures.markdown("*" * 100_000) is None
