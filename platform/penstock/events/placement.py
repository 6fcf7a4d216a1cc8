"""Which partition of the event log a session belongs to.

The rule is that of Kafka's own clients for a record whose key is the session's id: what a
gateway writes and what another producer writes of one session meet in one partition.
"""

from functools import lru_cache

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF
#: Sessions come back with every request; the hash is slow for Python.
_REMEMBERED = 1 << 16


@lru_cache(_REMEMBERED)
def partition_of(session_id: str, partitions: int) -> int:
    """The partition that holds this session as long as there are so many."""
    return (murmur2(session_id.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as 32 bits without a sign."""
    length = len(data)
    found = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        found = (found * _MIX & _MASK) ^ word
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    found = (found ^ found >> 13) * _MIX & _MASK
    return found ^ found >> 15
