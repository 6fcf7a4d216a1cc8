"""Keys that are not known are counted and bounded for each address; known ones always work."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.access.keys import (
    _ADDRESSES_MAX,
    _FAILURES_MAX,
    Authorizer,
    FailedKeys,
    KeyRefused,
    KeyRing,
    TooManyBadKeys,
    create_key,
)
from penstock.backends.http import problems
from penstock.backends.http.problems import RequestFacts
from penstock.core.metrics import Metrics
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake, open_or_make
from tests.support.manual_clock import ManualClock

WRONG = "Bearer nonsense"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_or_make(load_settings(tmp_path, environment={})) as lake:
        yield lake


def test_an_address_that_guesses_is_held_off(lake: Lake) -> None:
    clock, metrics = ManualClock(), Metrics()
    ring = KeyRing(lake.database, clock)
    _, secret = create_key(lake.database, "read", "acme")
    ring.refresh()
    authorizer = Authorizer(ring, clock, metrics)

    def ask(address: str, authorization: str | None) -> object:
        problems._current.set(RequestFacts("r", address=address))
        return asyncio.run(authorizer.authorize(authorization, "read"))

    for _ in range(_FAILURES_MAX):
        with pytest.raises(KeyRefused):
            ask("10.0.0.1", WRONG)
    with pytest.raises(TooManyBadKeys) as refused:
        ask("10.0.0.1", WRONG)
    assert 0 < int(refused.value.http_headers["Retry-After"]) <= 61
    # Whoever has a key is served from the same address, as behind a balancer.
    assert ask("10.0.0.1", f"Bearer {secret}")
    with pytest.raises(TooManyBadKeys):  # which unlocks no guesses
        ask("10.0.0.1", WRONG)
    for address, authorization in (("10.0.0.2", WRONG), ("10.0.0.1", None)):
        with pytest.raises(KeyRefused):
            ask(address, authorization)
    counts = {reason: metrics.value("keys_refused_total", reason=reason)
              for reason in ("unknown", "limited", "missing")}  # fmt: skip
    assert counts == {"unknown": _FAILURES_MAX + 1, "limited": 2, "missing": 1}
    clock.advance(61)
    with pytest.raises(KeyRefused):
        ask("10.0.0.1", WRONG)


def test_one_network_is_one_address_and_memory_is_bounded() -> None:
    failed = FailedKeys(ManualClock())
    for number in range(_FAILURES_MAX):
        failed.count(f"2001:db8::{number:x}", "unknown")
    with pytest.raises(TooManyBadKeys):
        failed.refuse_guesser("2001:db8::ffff")
    for number in range(2 * _ADDRESSES_MAX):
        failed.count(f"10.{number >> 16}.{(number >> 8) & 255}.{number & 255}", "unknown")
    assert len(failed) == _ADDRESSES_MAX
