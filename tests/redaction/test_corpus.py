"""The rules find what they should in both halves of the corpus, and little else."""

import pytest

from bench.redaction import measure_half
from penstock.redaction.line_redaction import LineRedactor
from penstock.redaction.rules import rule_book
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
