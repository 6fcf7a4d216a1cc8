"""Redaction: how much of what it should mask it masks, what it masks besides, and what it costs."""

import time
from collections.abc import Iterator

from bench.figures import Figure, at_least, at_most
from bench.traffic import Traffic
from penstock.redaction.line_redaction import LineRedactor
from penstock.redaction.rules import rule_book
from tests.support.redaction_corpus import Half, corpus


def measure_redaction(traffic: Traffic, event_cpu_us: float) -> Iterator[Figure]:
    """`event_cpu_us` is what the server takes for an event, redaction of secrets included."""
    both = LineRedactor(rule_book("mask", "mask"), lambda: b"bench")
    for half in ("tuned", "held out"):
        precision, recall, samples = measure_half(both, half)
        yield at_least(f"redaction, {half} half of {samples} texts: precision", precision, 0.95)
        yield at_least("  recall", recall, 0.95)
    secrets = LineRedactor(rule_book("mask", "off"), lambda: b"bench")
    lines = [line for body in traffic.plain for line in body.splitlines()]
    for name, redactor in (("secrets", secrets), ("personal data too", both)):
        started = time.process_time()
        redactor.redact(lines, "default", 1 << 30)
        cost_us = 1e6 * (time.process_time() - started) / len(lines)
        yield Figure(f"  an event, {name}", f"{cost_us:.1f} µs")
        if redactor is secrets:
            yield at_most("  share of the server's time for an event", cost_us / event_cpu_us, 0.33)


def measure_half(redactor: LineRedactor, half: Half) -> tuple[float, float, int]:
    """Precision, recall, and the number of texts."""
    right = missed = wrong = 0
    for text, secret in corpus(half):
        masked, counts = redactor.mask_line(text.encode())
        if not secret:
            wrong += bool(counts)
        elif secret.encode() in masked:
            missed += 1
        else:
            right += 1
    samples = sum(1 for _ in corpus(half))
    return right / (right + wrong), right / (right + missed), samples
