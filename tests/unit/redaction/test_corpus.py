"""The rules find what they should in both halves of the corpus, and little else."""

import random

import pytest

from bench.redaction import measure_half
from penstock.events.redaction.line_redaction import LineRedactor
from penstock.events.redaction.rules import built_in_rules, rule_book
from tests.support.redaction_corpus import Half, corpus


@pytest.mark.parametrize("half", ["tuned", "held out"])
def test_precision_and_recall(half: Half) -> None:
    samples = list(corpus(half))
    assert (
        min(sum(bool(sample.secret) == kind for sample in samples) for kind in (True, False)) >= 500
    )
    redactor = LineRedactor(rule_book("mask", "mask"), lambda: b"k")
    precision, recall, _ = measure_half(redactor, half)
    assert precision >= 0.95
    assert recall >= 0.95


def test_around_its_words_a_rule_matches_what_its_pattern_matches() -> None:
    generator = random.Random(5)
    texts = [text for half in ("tuned", "held out") for text, _ in corpus(half)][::5]
    texts += ["".join(generator.choices(texts, k=3)) for _ in range(50)]
    texts += [text.upper() for text in texts] + [f"İ {text}" for text in texts]
    for rule in built_in_rules():
        for text in texts:
            expected = [match.span() for match in rule.pattern.finditer(text)]
            assert [match.span() for match in rule.matches(text)] == expected
