"""The rules find what they should in both halves of the corpus, and little else."""

import random

import pytest

from bench.redaction import measure_half
from penstock.events.redaction.line_redaction import LineRedactor
from penstock.events.redaction.rules import built_in_rules, rule_book
from tests.support.redaction_corpus import Half, corpus


@pytest.mark.parametrize(("half", "kept_max", "masked_max"), [("tuned", 4, 0), ("held out", 2, 0)])
def test_few_secrets_are_kept_and_few_honest_texts_masked(
    half: Half, kept_max: int, masked_max: int
) -> None:
    found = measure_half(LineRedactor(rule_book("mask", "off"), lambda: b"k"), half)
    assert found.planted >= 135
    assert found.honest >= 100
    assert found.kept <= kept_max
    assert found.masked <= masked_max


def test_around_its_words_a_rule_matches_what_its_pattern_matches() -> None:
    generator = random.Random(5)
    texts = [text for half in ("tuned", "held out") for text, _ in corpus(half)]
    texts += ["".join(generator.choices(texts, k=3)) for _ in range(50)]
    texts += [text.upper() for text in texts] + [f"İ {text}" for text in texts]
    for rule in built_in_rules():
        for text in texts:
            expected = [match.span() for match in rule.pattern.finditer(text)]
            assert [match.span() for match in rule.matches(text)] == expected
