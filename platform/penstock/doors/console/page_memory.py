"""What pages over a whole lake say: made once, shown again until it is old, then made anew in the
background while whoever asks sees the one of before, with the time of its making."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.core.clock import SECOND_US, Clock
from penstock.core.endpoint import Request
from penstock.doors.console.page import ConsolePage, Content, Visitor

#: Quicker ones are made each time.
_QUICK_SECONDS = 0.15
#: A page is shown again for so many times as long as it took to make.
_TIMES_SHOWN = 30
#: While it is made anew, it may be so many times as old.
_TIMES_OLD = 10
_PAGES_MAX = 100

_Key = tuple[str, str, str, bytes]


@dataclass(frozen=True)
class RememberedPage:
    content: Content
    made_us: int
    took_s: float


class PageMemory:
    """Safe to share between threads. No page is shown again for longer than `seconds_max`."""

    def __init__(self, clock: Clock, seconds_max: float) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._pages: OrderedDict[_Key, RememberedPage] = OrderedDict()
        self._under_way: set[_Key] = set()
        self._lock = threading.Lock()

    def find(
        self, page: ConsolePage[Any], visitor: Visitor, request: Request
    ) -> tuple[RememberedPage | None, bool]:
        """What may be shown, and whether the caller is to make it anew: one of several that ask."""
        key = _key_of(page, visitor, request)
        with self._lock:
            known = self._pages.get(key)
            if known is None:
                return None, False
            self._pages.move_to_end(key)
            keep_s = min(self._seconds_max, _TIMES_SHOWN * known.took_s)
            age_s = (self._clock.now_us() - known.made_us) / SECOND_US
            if age_s <= keep_s:
                return known, False
            if age_s > _TIMES_OLD * keep_s:
                del self._pages[key]
                return None, False
            if key in self._under_way:
                return known, False
            self._under_way.add(key)
            return known, True

    def make(
        self,
        page: ConsolePage[Any],
        visitor: Visitor,
        request: Request,
        work: Callable[[], Any],
    ) -> Any:
        """What the work gives, remembered if it took long."""
        key = _key_of(page, visitor, request)
        began_us, began_s = self._clock.now_us(), self._clock.elapsed_s()
        try:
            content = work()
            took_s = self._clock.elapsed_s() - began_s
            if isinstance(content, Mapping) and took_s > _QUICK_SECONDS and self._seconds_max > 0:
                with self._lock:
                    self._pages[key] = RememberedPage(content, began_us, took_s)
                    while len(self._pages) > _PAGES_MAX:
                        self._pages.popitem(last=False)
        finally:
            with self._lock:
                self._under_way.discard(key)
        return content


def _key_of(page: ConsolePage[Any], visitor: Visitor, request: Request) -> _Key:
    grant = visitor.grant
    asked = msgspec.json.encode(request)
    return page.path, grant.tenant, grant.role, asked
