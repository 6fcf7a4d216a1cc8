"""The rows of plain sessions, one each, as columns: what `samples` says of them, byte for byte.

Where each prompt begins with all that was there before, a branch is what each prompt adds and what
each call wrote, one behind another. So the ids of a slice are parsed at once, in the order in which
the shard has them, and masks, log-probabilities and spans are computed on where the lists end.
A session whose tokens do not go on like that, or hold something that has to be looked at, is given
back: it is read as any other.
"""

import hashlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self
from warnings import catch_warnings

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.settings import KIB
from penstock.shards.schema import SHARD_ROWS
from penstock_jobs.shards.engine_branches import ASSISTANT
from penstock_jobs.shards.plain_sessions import CallTokens, PlainCall, PlainSession, read_plain
from penstock_jobs.shards.samples import UNKNOWN, SampleOptions, record_lists, tokenizer_names
from penstock_jobs.shards.session_events import temperature_of
from penstock_jobs.shards.token_credit import TokenRewards
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


# Rows


#: What the reward of a session stands at: its calls, and where each of their completions ends.
PlainCredit = Callable[[PlainSession, Sequence[int]], TokenRewards | None]


@dataclass(frozen=True)
class PlainRows:
    """Makes rows of those sessions that are plain."""

    expected: ExpectedTokens
    options: SampleOptions
    consents: Mapping[str, str]
    credit: PlainCredit

    def of(self, rows: pa.Table, redacted: pa.ChunkedArray, wanted: Collection[str]) -> pa.Table:
        """SHARD_ROWS; those of the wanted sessions that are not plain have none. `rows` are of
        segments of one tenant, in order, and `redacted` says in which something was masked."""
        parts = list(self._fitting(read_plain(rows, redacted, wanted)))
        tables = [self._table(tokens, rows) for tokens in token_slices(parts, self.expected)]
        return pa.concat_tables([SHARD_ROWS.empty_table(), *tables])

    def _fitting(self, sessions: Iterator[PlainSession]) -> Iterator[PlainTokens]:
        length_max = self.options.max_length
        for session in sessions:
            tokens = read_plain_tokens(session, self.expected)
            if tokens is not None and (length_max is None or sum(tokens.counts) <= length_max):
                session.settle()
                yield tokens

    def _table(self, tokens: TokenSlice, rows: pa.Table) -> pa.Table:
        sessions = [part.session for part in tokens.parts]
        count = len(sessions)
        names = [session.session_id for session in sessions]
        last = rows.select(["ts", "checkpoint", "source"]).take(
            pa.array([session.calls[-1].row for session in sessions])
        )
        same: dict[str, Any] = {
            "branch_index": 0, "n_branches": 1, "chain_pos": 0, "is_last_step": True,
            "loss_weight": 1.0, "token_source": "engine", "split": "train", "reward_components": [],
        }  # fmt: skip
        columns: dict[str, Any] = {
            name: pa.repeat(pa.scalar(value, SHARD_ROWS.field(name).type), count)
            for name, value in same.items()
        }
        columns["messages"] = [session.messages for session in sessions]
        columns["tools"] = [session.tools for session in sessions]
        columns |= dict.fromkeys(("trajectory_id", "rollout_id", "session_id"), names)
        ends = [session.end for session in sessions]
        licenses = [session.start.license for session in sessions]
        columns |= {
            "sample_id": _sample_ids(names, tokens),
            "group_id": [session.start.group_id or session.session_id for session in sessions],
            "task_id": [session.start.task_id for session in sessions],
            "status": [end.status for end in ends],
            "stop_reason": [end.stop_reason for end in ends],
            "model_name": [session.model for session in sessions],
            "checkpoint_id": last["checkpoint"].combine_chunks(),
            "source_system": last["source"].combine_chunks(),
            "created_at": last["ts"].combine_chunks(),
            "license": [text if isinstance(text, str) else None for text in licenses],
            "consent": [self.consents.get(name, UNKNOWN) for name in names],
            "token_rewards": record_lists(
                "token_rewards",
                [
                    self.credit(session, _call_ends(tokens, at))
                    for at, session in enumerate(sessions)
                ],
            ),
        }
        columns |= (
            _tokenizers(tokens, self.expected, self.options)
            | _number_columns(tokens)
            | _run_columns(tokens)
        )
        arrays = [
            _column(field, columns[field.name])
            if field.name in columns
            else pa.nulls(count, field.type)
            for field in SHARD_ROWS
        ]
        return pa.Table.from_arrays(arrays, schema=SHARD_ROWS)


def _column(field: pa.Field, values: Any) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == field.type else values.cast(field.type)
    return pa.array(values, field.type)


def _sample_ids(names: Sequence[str], tokens: TokenSlice) -> list[str]:
    """Of the first branch of a session."""
    ids, mask = tokens.ids.astype("<i4", copy=False), tokens.mask
    digests = []
    for name, (start, end) in zip(names, pairwise(tokens.offsets.tolist()), strict=True):
        digest = hashlib.sha256(f"{name}\0{0}\0".encode())
        digest.update(ids[start:end].data)
        digest.update(mask[start:end].data)
        digests.append(digest.hexdigest())
    return digests


def _call_ends(tokens: TokenSlice, at: int) -> list[int]:
    first, last = tokens.lists[at], tokens.lists[at + 1]
    ends = tokens.list_offsets[first + 2 : last + 1 : 2] - tokens.offsets[at]
    return [int(end) for end in ends]


def _tokenizers(
    tokens: TokenSlice, expected: ExpectedTokens, options: SampleOptions
) -> dict[str, list[str | None]]:
    named = [tokenizer_names(part.tokenizer, expected, options) for part in tokens.parts]
    return {
        "tokenizer_sha256": [digest for digest, _ in named],
        "tokenizer_id": [name for _, name in named],
        "template_sha256": [part.template for part in tokens.parts],
    }


# Columns of numbers


def _number_columns(tokens: TokenSlice) -> dict[str, pa.Array]:
    lengths = np.diff(tokens.offsets)
    counts = np.diff(tokens.list_offsets)
    written = np.add.reduceat(counts * (np.arange(len(counts)) % 2), tokens.lists[:-1])
    with_logprobs = np.where(tokens.has_logprobs, lengths, 0)
    flat = tokens.logprobs
    if not tokens.has_logprobs.all():
        flat = flat[np.repeat(tokens.has_logprobs, lengths)]
    logprobs = _lists("rollout_logprobs", flat, np.append(0, np.cumsum(with_logprobs)))
    if not tokens.has_logprobs.all():
        kind, offsets = logprobs.type, logprobs.offsets
        nulls = pa.array(~tokens.has_logprobs)
        logprobs = pa.LargeListArray.from_arrays(offsets, logprobs.values, type=kind, mask=nulls)
    return {
        "input_ids": _lists("input_ids", tokens.ids, tokens.offsets),
        "loss_mask": _lists("loss_mask", tokens.mask, tokens.offsets),
        "rollout_logprobs": logprobs,
        "n_tokens": pa.array(lengths),
        "n_trainable": pa.array(written),
        "prompt_len": pa.array(counts[tokens.lists[:-1]]),
        "turn_spans": _spans(tokens),
    }


def _lists(name: str, values: NDArray[Any], offsets: NDArray[np.int64]) -> pa.LargeListArray:
    kind = SHARD_ROWS.field(name).type
    return pa.LargeListArray.from_arrays(
        pa.array(offsets), pa.array(values, kind.value_type), type=kind
    )


def _spans(tokens: TokenSlice) -> pa.ListArray:
    """A span for each list that is not empty."""
    kind = SHARD_ROWS.field("turn_spans").type
    fields = list(kind.value_type)
    calls = [call for part in tokens.parts for call in part.session.calls]
    starts, ends = tokens.list_offsets[:-1], tokens.list_offsets[1:]
    base = np.repeat(tokens.offsets[:-1], np.diff(tokens.lists))
    present = ends > starts
    sampled = np.arange(len(starts)) % 2 == 1
    turns = np.repeat(np.array([call.turn for call in calls], np.int32), 2)
    roles = np.full(len(starts), ASSISTANT, np.int8)
    roles[::2] = [call.after for call in calls]
    seqs = pa.array([seq for call in calls for seq in _seqs(call)], pa.int64())
    columns = [starts - base, ends - base, turns, roles, sampled, seqs]
    kept = pa.array(present)
    arrays = [
        pa.array(column).filter(kept).cast(field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    records = pa.StructArray.from_arrays(arrays, fields=fields)
    places = np.append(0, np.cumsum(present))[tokens.lists]
    return pa.ListArray.from_arrays(pa.array(places.astype(np.int32)), records, type=kind)


def _seqs(call: PlainCall) -> tuple[int | None, int | None]:
    return call.after_seq, call.seq


def _run_columns(tokens: TokenSlice) -> dict[str, Any]:
    versions = [[version for _, version in runs or ()] for runs in tokens.runs]
    temperatures = [_temperature_runs(tokens, at) for at in range(len(tokens.parts))]
    shared = [{value for _, value in runs or ()} for runs in temperatures]
    return {
        "policy_version_runs": record_lists("policy_version_runs", tokens.runs),
        "min_policy_version": [min(own, default=None) for own in versions],
        "max_policy_version": [max(own, default=None) for own in versions],
        "temperature_runs": record_lists("temperature_runs", temperatures),
        "temperature": [values.pop() if len(values) == 1 else None for values in shared],
    }


def _temperature_runs(tokens: TokenSlice, at: int) -> tuple[tuple[int, float], ...] | None:
    """None: not known of all calls."""
    runs: list[tuple[int, float]] = []
    first, base = tokens.lists[at], tokens.offsets[at]
    for number, value in enumerate(tokens.parts[at].temperatures):
        if value is None:
            return None
        if not runs or runs[-1][1] != value:
            runs.append((int(tokens.list_offsets[first + 2 * number + 1] - base), value))
    return tuple(runs)
