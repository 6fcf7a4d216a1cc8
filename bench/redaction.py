"""Redaction: how much of what it should mask it masks, what it masks besides, and what it costs."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.figures import Figure, Goal
from bench.ingest_run import ingest_at_full_speed
from bench.measurement import Measurement, Size
from bench.traffic import Traffic, make_traffic
from penstock.events.redaction.line_redaction import LineRedactor
from penstock.events.redaction.rules import rule_book
from tests.support.redaction_corpus import Half, corpus

_EVENTS = 40_000
_PRECISION = Goal(what="precision", at_least=0.95)
_RECALL = Goal(what="  recall", at_least=0.95)
_SHARE = Goal(what="  share of the server's time for an event", at_most=0.33)
_SPEED = Goal(what="events per CPU second, against nothing masked", at_least=0.67)
_MASKED: dict[str, dict[str, str]] = {
    "nothing": {"PENSTOCK_REDACT_SECRETS": "off"},
    "secrets": {},
    "personal data too": {"PENSTOCK_REDACT_PERSONAL": "mask"},
}


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    traffic = make_traffic(size.of(_EVENTS, 500))
    costs = _server_costs(here, traffic, size.rounds)
    yield from _masks(traffic, 1000 * median(costs["secrets"]))
    for name in ("secrets", "personal data too"):
        pairs = zip(costs["nothing"], costs[name], strict=True)
        yield _SPEED.figure_of_rounds([bare / masked for bare, masked in pairs], f"{name} masked")
    for name, cpu_s in costs.items():
        yield Figure(f"  CPU per 1,000 events, {name} masked", f"{median(cpu_s):.4f} s")


def _masks(traffic: Traffic, event_cpu_us: float) -> Iterator[Figure]:
    """`event_cpu_us` is what the server takes for an event, redaction of secrets included."""
    secrets = LineRedactor(rule_book("mask", "off"), lambda: b"bench")
    both = LineRedactor(rule_book("mask", "mask"), lambda: b"bench")
    for half in ("tuned", "held out"):
        found = measure_half(secrets, half)
        right = found.planted - found.kept
        texts = f"{found.planted} with a secret, {found.honest} without"
        yield _PRECISION.figure(right / (right + found.masked), f"{half}: {texts}")
        yield _RECALL.figure(right / found.planted)
    lines = [line for body in traffic.plain for line in body.splitlines()]
    for name, redactor in (("secrets", secrets), ("personal data too", both)):
        started = time.process_time()
        redactor.redact(lines, "default", 1 << 30)
        cost_us = 1e6 * (time.process_time() - started) / len(lines)
        yield Figure(f"  an event, {name}", f"{cost_us:.1f} µs")
        if redactor is secrets:
            yield _SHARE.figure(cost_us / event_cpu_us)


def _server_costs(here: Path, traffic: Traffic, rounds: int) -> dict[str, list[float]]:
    """CPU seconds per 1,000 events of the same server with and without, by turns."""
    costs: dict[str, list[float]] = {name: [] for name in _MASKED}
    for number in range(rounds):
        for name, settings in _MASKED.items():
            done = ingest_at_full_speed(
                here / f"{name}-{number}", traffic.packed, settings=settings
            )
            costs[name].append(1000 * done.cpu_s / traffic.events)
    return costs


class Found(NamedTuple):
    planted: int
    #: Secrets of which a half is still there.
    kept: int
    honest: int
    masked: int


def measure_half(redactor: LineRedactor, half: Half) -> Found:
    planted = kept = honest = wrong = 0
    for text, secret in corpus(half):
        masked, counts = redactor.mask_line(json.dumps({"output": text}).encode())
        after = json.loads(masked)["output"]
        middle = len(secret) // 2
        planted, honest = planted + bool(secret), honest + (not secret)
        kept += bool(secret) and (secret[:middle] in after or secret[middle:] in after)
        wrong += not secret and bool(counts)
    return Found(planted, kept, honest, wrong)


MEASUREMENT = Measurement(
    name="redaction",
    title="Redaction",
    about="""
How much of what it should mask it masks, what it masks besides, and what it costs: a server with
secrets masked, with personal data masked as well, and with nothing masked, in turns.
""",
    goals=(_PRECISION, _RECALL, _SHARE, _SPEED),
    run=_measure,
    quick=False,
)
