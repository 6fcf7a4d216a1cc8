"""Which sessions a segment holds, in four bytes a session.

A filter is the sorted upper halves of the sessions' hashes: no session that is there is
missed, and one in some 400,000 that are not there is taken for one in a segment of 10,000.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from penstock.events.event import session_hash

Prefixes = npt.NDArray[np.uint32]


def prefixes(sessions: Iterable[str]) -> Prefixes:
    """One prefix for each `session_key`, in their order."""
    return np.fromiter((session_hash(one) >> 32 for one in sessions), np.uint32)


def make_filter(sessions: Iterable[str]) -> bytes:
    return np.unique(prefixes(sessions)).astype("<u4").tobytes()


def join_filters(filters: Iterable[bytes]) -> bytes:
    """The filter of all their sessions."""
    parts = [np.empty(0, "<u4"), *map(read_filter, filters)]
    return np.unique(np.concatenate(parts)).astype("<u4").tobytes()


def read_filter(stored: bytes) -> Prefixes:
    return np.frombuffer(stored, "<u4")


def may_hold(filter_: Prefixes, wanted: Prefixes) -> npt.NDArray[np.bool_]:
    """For each wanted prefix whether the segment may hold its session."""
    if not len(filter_):
        return np.zeros(len(wanted), np.bool_)
    positions = np.minimum(np.searchsorted(filter_, wanted), len(filter_) - 1)
    found: npt.NDArray[np.bool_] = filter_[positions] == wanted
    return found
