"""The published arithmetic, worked by hand."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.rewards.texts.survival import presence, sim4
from penstock_jobs.rewards.texts.trail import code_units


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # abcd bcde | abcd bcdf: 2 + 2 grams, two differ: (4 − 2) / 4.
        ("abcde", "abcdf", 0.5),
        # aaaa twice and three times: 2 + 3 grams, one differs: (5 − 1) / 5.
        ("aaaaa", "aaaaaa", 0.8),
        ("abcd", "efgh", 0.0),
        ("same", "same", 1.0),
        # Fewer than four characters: equal or not.
        ("abc", "abc", 1.0),
        ("abc", "abcd", 0.0),
        ("", "", 1.0),
        ("", "abcd", 0.0),
        # A 𝄞 is two code units, so three characters are four units and have a gram, the same.
        ("a𝄞b", "a𝄞b", 1.0),
        # a𝄞bc is five units: 2 grams; a𝄞bd likewise; one of each is shared: (4 − 2) / 4.
        ("a𝄞bc", "a𝄞bd", 0.5),
    ],
)
def test_sim4(a: str, b: str, expected: float) -> None:
    assert sim4(a, b) == expected
    assert sim4(b, a) == expected


def test_code_units_of_a_lone_surrogate() -> None:
    assert len(code_units("a\ud800𝄞")) == 4


@given(st.text("ab𝄞\n", max_size=40), st.text("ab𝄞\n", max_size=40))
def test_sim4_is_as_the_formula_says(a: str, b: str) -> None:
    one, other = code_units(a), code_units(b)
    grams = [Counter(text[i : i + 4] for i in range(len(text) - 3)) for text in (one, other)]
    sizes = [sum(each.values()) for each in grams]
    if min(sizes) == 0:
        expected = float(a == b)
    else:
        differ = sum(abs(grams[0][g] - grams[1][g]) for g in grams[0] | grams[1])
        expected = (sum(sizes) - differ) / sum(sizes)
    assert sim4(a, b) == expected


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_presence_is_as_the_formula_says(chunk: str, file: str) -> None:
    grams = [chunk[i : i + 4] for i in range(len(chunk) - 3)]
    if grams:
        assert presence(chunk, file) == sum(gram in file for gram in grams) / len(grams)
    else:
        assert presence(chunk, file) == float(chunk in file)
