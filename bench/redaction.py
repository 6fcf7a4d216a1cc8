"""Redaction: how much of what it should mask it masks, what it masks besides, and what it costs."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figures import Figure, at_least, at_most
from bench.ingest import ingest_at_full_speed
from bench.traffic import Traffic
from penstock.redaction.line_redaction import LineRedactor
from penstock.redaction.rules import rule_book
from tests.support.redaction_corpus import Half, corpus

_ROUNDS = 3
_MASKED: dict[str, dict[str, str]] = {
    "nothing": {"PENSTOCK_REDACT_SECRETS": "off"},
    "secrets": {},
    "personal data too": {"PENSTOCK_REDACT_PERSONAL": "mask"},
}


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


def measure_redacting_server(here: Path, traffic: Traffic) -> Iterator[Figure]:
    """The same server with and without, one after the other."""
    shares: dict[str, list[float]] = {"secrets": [], "personal data too": []}
    costs: dict[str, list[float]] = {name: [] for name in ("nothing", *shares)}
    for round_ in range(_ROUNDS):
        for name, settings in _MASKED.items():
            done = ingest_at_full_speed(
                here / f"{name}-{round_}", traffic.packed, settings=settings
            )
            costs[name].append(1000 * done.cpu_s / traffic.events)
        for name, ratios in shares.items():
            ratios.append(costs["nothing"][-1] / costs[name][-1])
    for name, ratios in shares.items():
        what = f"events per CPU second with {name} masked, against nothing masked"
        yield at_least(what, median(ratios), 0.67)
        yield Figure("  the rounds", ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios)))
    for name, cpu_s in costs.items():
        yield Figure(f"  CPU per 1,000 events, {name} masked", f"{median(cpu_s):.4f} s")


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
