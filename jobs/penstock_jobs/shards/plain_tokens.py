"""The tokens of plain sessions: all lists of a slice in one piece, from their JSON to Arrow.

Where each prompt begins with all that was there before, a branch is what each prompt adds and what
each call wrote, one behind another. So the ids of a slice are parsed at once, in the order in which
the shard has them, and masks, log-probabilities and spans are computed on where the lists end.
A session whose tokens do not go on like that, or hold something that has to be looked at, is given
back: it is read as any other.
"""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self
from warnings import catch_warnings

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.settings import KIB
from penstock_jobs.shards.plain_sessions import CallTokens, PlainSession
from penstock_jobs.shards.session_events import temperature_of
from penstock_jobs.shards.token_payload import (
    INT32_END,
    BrokenTokens,
    ExpectedTokens,
    Floats,
    Ids,
    Runs,
    is_digest,
    version_runs,
)

Places = NDArray[np.int64]
_ids_decoder = msgspec.json.Decoder(list[int])
_floats_decoder = msgspec.json.Decoder(list[float])
_runs_decoder = msgspec.json.Decoder(list[tuple[int, Any]] | None)


_KINDS = {"q": np.dtype(np.int64), "d": np.dtype(np.float64)}
_BYTES_AT_ONCE = 32 * KIB
#: Numpy makes no objects, and each call of it takes a while.
_DIGITS_AT_ONCE = 256 * KIB
_COMMA, _ZERO, _SPACE = b",0 "


class _NotPlain(Exception):
    """Some session of a slice has tokens that are no plain ones."""


class PlainTokens(NamedTuple):
    """Of a session: the inner texts of its lists, by turns what a prompt adds and what was
    written, and how many numbers each has."""

    session: PlainSession
    texts: list[bytes]
    counts: list[int]
    logprobs: list[bytes]
    #: Of each call.
    versions: list[bytes]
    temperatures: list[float | None]
    tokenizer: str
    template: str | None


def read_plain_tokens(session: PlainSession, expected: ExpectedTokens) -> PlainTokens | None:
    """None where its tokens are not those of one branch."""
    calls = [payload.tokens or CallTokens() for payload in session.payloads]
    first = calls[0]
    tokenizer = (first.tokenizer or "").removeprefix("sha256:")
    if is_digest(tokenizer) and expected.tokenizer not in (None, tokenizer):
        return None
    logprobs: list[bytes] = []
    versions: list[bytes] = []
    for tokens in calls:
        same = (tokens.tokenizer, tokens.template) == (first.tokenizer, first.template)
        if tokens.redacted or not same or bytes(tokens.routed_experts) != b"null":
            return None
        reported = bytes(tokens.logprobs)
        logprobs.append(b"" if reported == b"null" else reported[1:-1])
        versions.append(bytes(tokens.policy_version_runs))
    if any(logprobs) and not all(logprobs):
        return None
    temperatures = [temperature_of(payload) for payload in session.payloads]
    template = (first.template or "").removeprefix("sha256:") or None
    texts = session.ids.texts
    counts = [_count(text) for text in texts]
    return PlainTokens(
        session, texts, counts, logprobs, versions, temperatures, tokenizer, template
    )


@dataclass(frozen=True, eq=False)
class TokenSlice:
    """The tokens of several sessions, a branch each, in one piece."""

    parts: Sequence[PlainTokens]
    ids: Ids
    #: Where branches begin, and the end of the last; and the same of their lists in `ids`.
    offsets: Places
    list_offsets: Places
    #: Which lists each branch has: two for each call.
    lists: Places
    #: As long as the ids; what is not known is 0.
    mask: NDArray[np.uint8]
    logprobs: Floats
    has_logprobs: NDArray[np.bool_]
    runs: Sequence[Runs | None]

    @classmethod
    def of(cls, parts: Sequence[PlainTokens], end: int) -> Self:
        """Ids are below `end`. Raises _NotPlain."""
        texts = [text for part in parts for text in part.texts]
        counts = np.array([count for part in parts for count in part.counts], np.int64)
        ids = whole_numbers(texts)
        lists = np.append(0, np.cumsum([len(part.texts) for part in parts]))
        list_offsets = np.append(0, np.cumsum(counts))
        if len(ids) != list_offsets[-1] or not len(ids) or ids.min() < 0 or ids.max() >= end:
            raise _NotPlain
        mask = np.repeat(np.arange(len(texts)) % 2, counts).astype(np.uint8)
        offsets = list_offsets[lists]
        reported = [text for part in parts for text in part.logprobs]
        has_logprobs = np.array([bool(part.logprobs[0]) for part in parts], bool)
        reporting = np.repeat(has_logprobs, np.diff(lists) // 2)
        if (np.array([_count(text) for text in reported]) != counts[1::2])[reporting].any():
            raise _NotPlain
        logprobs = np.zeros(len(ids), np.float32)
        values = _numbers(reported, _floats_decoder, "d")
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        if not np.isfinite(narrow).all() or (narrow > 0).any():
            raise _NotPlain
        logprobs[(mask == 1) & np.repeat(has_logprobs, np.diff(offsets))] = narrow
        runs = [
            _runs(part, list_offsets[first : last + 1] - list_offsets[first])
            for part, first, last in zip(
                parts, lists[:-1].tolist(), lists[1:].tolist(), strict=True
            )
        ]
        return cls(
            parts, ids.astype(np.int32), offsets, list_offsets, lists, mask, logprobs,
            has_logprobs, runs,
        )  # fmt: skip


def token_slices(parts: Sequence[PlainTokens], expected: ExpectedTokens) -> Iterator[TokenSlice]:
    """Of those that are plain: a slice that is not is halved, until the one that spoils it is
    alone."""
    if not parts:
        return
    try:
        yield TokenSlice.of(parts, min(expected.vocabulary or INT32_END, INT32_END))
    except (_NotPlain, msgspec.MsgspecError, OverflowError, UnicodeDecodeError, RecursionError):
        if len(parts) > 1:
            half = len(parts) // 2
            yield from token_slices(parts[:half], expected)
            yield from token_slices(parts[half:], expected)


def _count(text: bytes) -> int:
    return text.count(b",") + 1 if text else 0


def whole_numbers(texts: Sequence[bytes]) -> NDArray[np.int64]:
    return np.concatenate([_whole_numbers(part) for part in _parts(texts, _DIGITS_AT_ONCE)])


def _whole_numbers(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Of lists of digits and commas numpy takes half of the time. It is less strict than JSON, so
    whatever else there is goes the other way."""
    joined = b",".join(texts)
    if not joined.translate(None, b"0123456789, ") and _is_list(joined):
        with suppress(ValueError, DeprecationWarning), catch_warnings(action="error"):
            return np.fromstring(joined, np.int64, sep=",")
    return _numbers(texts, _ids_decoder, "q")


def _is_list(joined: bytes) -> bool:
    """Of digits, commas and spaces: whether it is what JSON has between brackets, and each space
    stands behind a comma."""
    signs = np.frombuffer(b"," + joined + b",", np.uint8)
    commas, spaces = signs == _COMMA, signs == _SPACE
    between = commas | spaces
    lone_spaces = spaces[1:] & ~commas[:-1]
    nothing = commas[1:] & between[:-1]
    leading_zeros = between[:-2] & (signs[1:-1] == _ZERO) & ~between[2:]
    return not (lone_spaces.any() or nothing.any() or leading_zeros.any())


def _numbers(texts: Sequence[bytes], decoder: Any, kind: Literal["q", "d"]) -> NDArray[Any]:
    """So many bytes at a time that the numbers, each an object, stay near the processor."""
    return np.concatenate([_decoded(part, decoder, kind) for part in _parts(texts, _BYTES_AT_ONCE)])


def _parts(texts: Sequence[bytes], bytes_at_once: int) -> Iterator[list[bytes]]:
    """Those that are not empty, of so many bytes and a little more; the last may be empty."""
    waiting: list[bytes] = []
    size = 0
    for text in texts:
        if text:
            waiting.append(text)
            size += len(text)
        if size >= bytes_at_once:
            yield waiting
            waiting, size = [], 0
    yield waiting


def _decoded(texts: Sequence[bytes], decoder: Any, kind: Literal["q", "d"]) -> NDArray[Any]:
    numbers = decoder.decode(b"[" + b",".join(texts) + b"]")
    return np.frombuffer(array(kind, numbers), _KINDS[kind])


def _runs(part: PlainTokens, ends: Places) -> Runs | None:
    """Which version wrote from which place on; None: not known of all calls."""
    runs: list[tuple[int, int]] = []
    known = True
    for number, text in enumerate(part.versions):
        start, end = ends[2 * number + 1 : 2 * number + 3].tolist()
        of_call = _runs_of_call(text, end - start)
        known &= of_call is not None
        if runs and of_call and of_call[0][1] < runs[-1][1]:
            raise _NotPlain  # the model was rolled back
        for place, version in of_call or ():
            if not runs or runs[-1][1] != version:
                runs.append((start + place, version))
    return tuple(runs) if known else None


@lru_cache(maxsize=1024)
def _runs_of_call(text: bytes, length: int) -> Runs | None:
    reported = _runs_decoder.decode(text) or []
    try:
        runs = version_runs(reported, length)
    except BrokenTokens as broken:
        raise _NotPlain from broken
    if reported and runs is None:
        raise _NotPlain  # versions that are no numbers
    return runs
