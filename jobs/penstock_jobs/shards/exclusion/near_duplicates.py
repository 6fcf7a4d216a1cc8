"""Near-duplicates: texts that say nearly the same. Of each cluster the least id stays.

How alike two texts are is the share of shingles, runs of WORDS words, that they have in common of
those that either has (Jaccard). MinHash estimates it: of PERMUTATIONS orders of all shingles, the
share in which both texts have the same first one, with a standard error of √(s(1 − s) / 126), 0.036
at s = 0.8. Which pairs to look at is found by bands of ROWS such firsts: two texts are compared
where a whole band is equal, which misses a pair of the similarity s with the probability
(1 − s⁶)²¹: 0.2 % at 0.8, 3 % at 0.7.

Measured at the bound 0.8 over pairs of 250 words, of which some were replaced: of those alike by
0.87 and more all were found, of those from 0.8 to 0.87 four in five, from 0.73 to 0.8 one in five,
below 0.7 none.

The cluster is by links: what is near to something near is in it. The result depends on the texts,
the ids and the seed, never on their order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from penstock.lake.buckets import Bucket, read_bucket
from penstock.lake.lake import Lake
from penstock.settings import Settings
from penstock_jobs.shards.conversation import Conversation
from penstock_jobs.shards.conversation_reader import read_conversation
from penstock_jobs.shards.exclusion.reasons import Exclusion, Exclusions
from penstock_jobs.shards.exclusion.session_buckets import SessionBuckets
from penstock_jobs.shards.exclusion.shingles import Hashes, mixed, shingles
from penstock_jobs.shards.session_events import COLUMNS, events_by_session
from penstock_jobs.shards.split import linked

WORDS = 5
BANDS, ROWS = 21, 6
PERMUTATIONS = BANDS * ROWS
#: Fewer shingles say too little: "Done, all tests pass." is nobody's duplicate.
SHINGLES_MIN = 16
#: Shingles that are hashed at once: 126 × 4096 × 8 bytes.
_AT_ONCE = 4096
#: With how many before it in a band a text is compared, beside the first.
_WINDOW = 8

Signature = NDArray[np.uint32]
Pairs = NDArray[np.int64]


def signature(texts: Iterable[str], seed: int) -> Signature | None:
    """Of all that the model wrote in a session; none where that is too little to compare."""
    found = [shingles(text, WORDS) for text in texts]
    grams = np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)
    if len(grams) < SHINGLES_MIN:
        return None
    factors, terms = _permutations(seed)
    least = np.full(PERMUTATIONS, np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(grams), _AT_ONCE):
        some = grams[start : start + _AT_ONCE]
        hashed = factors[:, None] * some[None, :] + terms[:, None]
        np.minimum(least, hashed.min(axis=1), out=least)
    return (least >> np.uint64(32)).astype(np.uint32)


def near_duplicates(
    ids: Sequence[str],
    signatures: Sequence[Signature | None],
    groups: Sequence[str],
    similarity_min: float,
) -> Exclusions:
    """Those that are left out, with the one of their cluster that stays. What is in one group is
    never compared: attempts at one task are alike on purpose."""
    order = [place for place in np.argsort(np.array(ids, object)) if signatures[place] is not None]
    if not order:
        return {}
    rows = np.stack([signatures[place] for place in order])
    _, group = np.unique(np.array([groups[place] for place in order]), return_inverse=True)
    pairs = _alike(rows, _candidates(rows), group, similarity_min)
    least = linked(len(order), pairs[:, 0], pairs[:, 1])
    names = [ids[place] for place in order]
    # Of a cluster, all of the group of the one that stays do.
    out = (least != np.arange(len(order))) & (group != group[least])
    return {
        names[place]: Exclusion("near_duplicate", f"of {names[least[place]]}")
        for place in np.flatnonzero(out)
    }


def _permutations(seed: int) -> tuple[Hashes, Hashes]:
    """Multiply and add modulo 2⁶⁴: the upper bits are an order of the hashed shingles."""
    start = np.uint64(seed % 2**64)
    numbers = np.arange(1, 2 * PERMUTATIONS + 1, dtype=np.uint64)
    drawn = mixed(mixed(np.array([start]))[0] + numbers * np.uint64(0x9E3779B97F4A7C15))
    return drawn[:PERMUTATIONS] | np.uint64(1), drawn[PERMUTATIONS:]


def _candidates(rows: NDArray[np.uint32]) -> Pairs:
    """Pairs of places with an equal band. In a band that many have, each is compared with the
    first and with a few before it, so that a thousand copies are not half a million pairs."""
    found = [np.empty((0, 2), np.int64)]
    for band in range(BANDS):
        columns = np.ascontiguousarray(rows[:, band * ROWS : (band + 1) * ROWS])
        _, key = np.unique(columns, axis=0, return_inverse=True)
        order = np.argsort(key, kind="stable")
        sorted_key = key[order]
        first = np.searchsorted(sorted_key, sorted_key)
        places = np.arange(len(order))
        for back in range(1, _WINDOW + 1):
            some = places[places - back >= first]
            found.append(np.stack([order[some - back], order[some]], axis=1))
        some = places[places > first]
        found.append(np.stack([order[first[some]], order[some]], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _alike(
    rows: NDArray[np.uint32], pairs: Pairs, group: NDArray[np.int64], similarity_min: float
) -> Pairs:
    pairs = pairs[group[pairs[:, 0]] != group[pairs[:, 1]]]
    kept = np.empty(len(pairs), bool)
    for start in range(0, len(pairs), _AT_ONCE):
        some = pairs[start : start + _AT_ONCE]
        same = rows[some[:, 0]] == rows[some[:, 1]]
        kept[start : start + _AT_ONCE] = same.mean(axis=1) >= similarity_min
    return pairs[kept]


# Signatures, which workers make


@dataclass(frozen=True)
class _SignatureTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    bucket: Bucket
    seed: int


def find_near_duplicates(
    buckets: SessionBuckets, groups: Mapping[str, str], *, seed: int, similarity_min: float
) -> Exclusions:
    """`groups` are those of the sessions."""
    signatures: dict[str, bytes | None] = {}
    settings = buckets.lake.settings
    tasks = partial(_SignatureTask, settings, seed=seed)
    for some in buckets.run(sign_bucket, groups, tasks):
        signatures |= some
    stored = [signatures.get(session) for session in groups]
    arrays = [None if one is None else np.frombuffer(one, np.uint32) for one in stored]
    return near_duplicates(list(groups), arrays, list(groups.values()), similarity_min)


def sign_bucket(task: _SignatureTask) -> dict[str, bytes | None]:
    """Runs on a worker: the signature of what the model wrote in each session of the bucket."""
    with Lake(task.settings) as lake:
        events = events_by_session(read_bucket(lake, task.bucket, COLUMNS))
    signatures: dict[str, bytes | None] = {}
    for session in events:
        texts = _written(read_conversation(session, events[session]))
        signed = signature(texts, task.seed)
        signatures[session] = None if signed is None else signed.tobytes()
    return signatures


def _written(conversation: Conversation) -> Iterator[str]:
    for message in conversation.messages:
        if message.call is not None:
            yield message.content
            yield from (call.arguments for call in message.tool_calls)
