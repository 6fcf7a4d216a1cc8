"""Events as a recorder writes them: a line of JSON, with an identity and a time of its own."""

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

#: Says how many events of its session a recorder had no room for. The ledger counts them by it.
DROPPED_TYPE = "x_recorder_dropped"

Payload = Mapping[str, Any]


class EventLines:
    """Lines of one process. Each has an `event_id`, so that sending it again adds nothing, and a
    later time than the one before, so that they have an order."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._process = os.urandom(8).hex()
        self._count = 0
        self._last_us = 0
        self._lock = threading.RLock()  # a handler of a signal may record, too

    def line(self, session_id: str, kind: str, payload: Payload, common: Payload) -> bytes:
        """Raises ValueError, TypeError, RecursionError where JSON cannot say it."""
        with self._lock:
            self._count += 1
            self._last_us = ts = max(time.time_ns() // 1000, self._last_us + 1)
            event_id = f"{self._process}-{self._count}"
        event = {
            "session_id": session_id,
            "event_id": event_id,
            "source": self._source,
            "ts": ts,
            "type": kind,
            **common,
            "payload": payload,
        }
        text = json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        # JSON has no lone surrogates, and file names of agents sometimes do.
        return text.encode("utf-8", "replace") + b"\n"
