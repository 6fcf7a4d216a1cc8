"""The fuse: when most of what comes is rejected, something is wrong that a person must see."""

from collections import deque

from penstock.ingest.errors import RejectedLimitReached


class RejectionLimit:
    """Watches the last lines that the writer stored or rejected, of all its partitions."""

    def __init__(self, ratio_max: float, window_lines: int) -> None:
        self._ratio_max = ratio_max
        self._window_lines = window_lines
        self._flushes: deque[tuple[int, int]] = deque()
        self._seen = 0
        self._rejected = 0

    def check(self, seen: int, rejected: int, reason: str) -> None:
        """Raises RejectedLimitReached when a flush of these lines must not be committed."""
        all_seen = self._seen + seen
        all_rejected = self._rejected + rejected
        # A share of the whole window, so that a few bad lines on a quiet day stop nothing.
        if rejected and all_rejected > self._ratio_max * max(all_seen, self._window_lines):
            raise RejectedLimitReached(
                rejected=all_rejected,
                seen=all_seen,
                limit=f"{self._ratio_max:.0%} of {max(all_seen, self._window_lines)}",
                reason=reason,
            )

    def add(self, seen: int, rejected: int) -> None:
        """Take a flush into account that was committed: one that is tried again counts once."""
        self._flushes.append((seen, rejected))
        self._seen += seen
        self._rejected += rejected
        while self._seen - self._flushes[0][0] >= self._window_lines:
            gone_seen, gone_rejected = self._flushes.popleft()
            self._seen -= gone_seen
            self._rejected -= gone_rejected
