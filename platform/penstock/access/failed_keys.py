"""Requests with keys that are not known: counted, and bounded for each address."""

from collections import OrderedDict
from typing import Literal

from penstock.access.errors import TooManyBadKeys
from penstock.clock import Clock
from penstock.http.address import address_group
from penstock.metrics import Metrics

Reason = Literal["missing", "unknown", "expired", "limited"]

#: From one address, in a minute. Secrets have 192 bits: this saves the database and the log, and
#: shows who tries. Keys that are valid work from there all the same, so that clients behind one
#: balancer do not lock each other out.
_FAILURES_MAX = 30
_WINDOW_SECONDS = 60.0
#: What is over is forgotten, the one that failed least recently first.
_ADDRESSES_MAX = 4096


class FailedKeys:
    """For one process, within its event loop."""

    def __init__(self, clock: Clock, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._metrics = metrics
        #: When the window of an address began, and how many failed in it.
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def refuse_guesser(self, address: str | None) -> None:
        """Raises TooManyBadKeys."""
        began_s, failures = self._windows.get(_place(address), (0.0, 0))
        left_s = began_s + _WINDOW_SECONDS - self._clock.elapsed_s()
        if failures >= _FAILURES_MAX and left_s > 0:
            self._add("limited")
            raise TooManyBadKeys(failures=failures, retry_after_s=int(left_s) + 1)

    def count(self, address: str | None, reason: Reason) -> None:
        self._add(reason)
        if reason != "unknown":  # nobody guesses
            return
        place, now_s = _place(address), self._clock.elapsed_s()
        began_s, failures = self._windows.pop(place, (now_s, 0))
        if now_s >= began_s + _WINDOW_SECONDS:
            began_s, failures = now_s, 0
        self._windows[place] = (began_s, failures + 1)
        if len(self._windows) > _ADDRESSES_MAX:
            self._windows.popitem(last=False)

    def _add(self, reason: Reason) -> None:
        if self._metrics is not None:
            self._metrics.add("keys_refused_total", reason=reason)


def _place(address: str | None) -> str:
    return address_group(address) if address else ""
