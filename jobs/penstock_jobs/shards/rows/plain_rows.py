"""Rows of plain sessions, one each, as columns: byte for byte what `samples` makes of them.

If each prompt begins with all previous tokens, a branch is a sequence of additions of prompts and
completions. So all ids of a slice are parsed at once, in the order of the shard, and the rest is
computed from the ends of lists. A session that turns out not to be plain is left to the general
path.
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Self

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.core.settings import KIB
from penstock.shards.schema import SHARD_ROWS
from penstock_jobs.shards.conversation.token_payload import (
    INT32_END,
    BrokenTokens,
    ExpectedTokens,
    Floats,
    Ids,
    Runs,
    version_runs,
)
from penstock_jobs.shards.recipe import Tokens
from penstock_jobs.shards.rows.engine_branches import ASSISTANT
from penstock_jobs.shards.rows.plain_sessions import PlainSession, count_of, read_plain
from penstock_jobs.shards.rows.samples import UNKNOWN, record_lists, sample_id, tokenizer_names
from penstock_jobs.shards.rows.token_credit import TokenRewards

Places = NDArray[np.int64]
_ids_decoder = msgspec.json.Decoder(list[int])
_floats_decoder = msgspec.json.Decoder(list[float])
_runs_decoder = msgspec.json.Decoder(list[tuple[int, Any]] | None)


#: So that the numbers, which are objects, stay in the processor's cache.
_BYTES_AT_ONCE = 32 * KIB


class _NotPlain(Exception):
    """A session of the slice has tokens that are not plain."""


@dataclass(frozen=True, eq=False)
class TokenSlice:
    """Tokens of several sessions, a branch each, in one array."""

    parts: Sequence[PlainSession]
    ids: Ids
    #: Offsets of branches, and of their lists, in `ids`.
    offsets: Places
    list_offsets: Places
    #: Offsets of each branch's lists: two lists for each call.
    lists: Places
    #: As long as the ids; unknown log-probabilities are 0.
    mask: NDArray[np.uint8]
    logprobs: Floats
    has_logprobs: NDArray[np.bool_]
    runs: Sequence[Runs | None]

    @classmethod
    def of(cls, parts: Sequence[PlainSession], end: int) -> Self:
        """Parse sessions. Ids must be below `end`. Raises _NotPlain."""
        texts = [text for part in parts for text in part.texts]
        counts = np.array([count for part in parts for count in part.counts], np.int64)
        ids = _numbers(texts, _ids_decoder)
        lists = np.append(0, np.cumsum([len(part.texts) for part in parts]))
        list_offsets = np.append(0, np.cumsum(counts))
        if len(ids) != list_offsets[-1] or not len(ids) or ids.min() < 0 or ids.max() >= end:
            raise _NotPlain
        mask = np.repeat(np.arange(len(texts)) % 2, counts).astype(np.uint8)
        offsets = list_offsets[lists]
        reported = [text for part in parts for text in part.logprobs]
        has_logprobs = np.array([bool(part.logprobs[0]) for part in parts], bool)
        reporting = np.repeat(has_logprobs, np.diff(lists) // 2)
        if (np.array([count_of(text) for text in reported]) != counts[1::2])[reporting].any():
            raise _NotPlain
        logprobs = np.zeros(len(ids), np.float32)
        values = _numbers(reported, _floats_decoder)
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


def token_slices(parts: Sequence[PlainSession], expected: ExpectedTokens) -> Iterator[TokenSlice]:
    """Yield slices of plain sessions. A failing slice is halved down to the bad session."""
    if not parts:
        return
    try:
        yield TokenSlice.of(parts, min(expected.vocabulary or INT32_END, INT32_END))
    except (_NotPlain, msgspec.MsgspecError, OverflowError, UnicodeDecodeError, RecursionError):
        if len(parts) > 1:
            half = len(parts) // 2
            yield from token_slices(parts[:half], expected)
            yield from token_slices(parts[half:], expected)


def _pieces(texts: Sequence[bytes]) -> Iterator[bytes]:
    """Join non-empty texts into pieces of about _BYTES_AT_ONCE; the last may be empty."""
    waiting: list[bytes] = []
    size = 0
    for text in texts:
        if text:
            waiting.append(text)
            size += len(text)
        if size >= _BYTES_AT_ONCE:
            yield b",".join(waiting)
            waiting, size = [], 0
    yield b",".join(waiting)


def _numbers(texts: Sequence[bytes], decoder: Any) -> NDArray[Any]:
    kind: Literal["q", "d"] = "q" if decoder is _ids_decoder else "d"
    pieces = (array(kind, decoder.decode(b"[" + text + b"]")) for text in _pieces(texts))
    return np.concatenate([np.frombuffer(piece, kind) for piece in pieces])


def _runs(part: PlainSession, ends: Places) -> Runs | None:
    """Return version runs; None if unknown for a call."""
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
        raise _NotPlain  # versions that are not numbers
    return runs


_SAME = {
    "branch_index": 0, "n_branches": 1, "chain_pos": 0, "is_last_step": True, "loss_weight": 1.0,
    "token_source": "engine", "split": "train", "reward_components": [],
}  # fmt: skip
#: Computes token rewards of a session whose calls end at these places.
PlainCredit = Callable[[PlainSession, Sequence[int]], TokenRewards | None]


class PlainRows(msgspec.Struct, frozen=True):
    """Makes rows of plain sessions."""

    expected: ExpectedTokens
    recipe: Tokens
    consents: Mapping[str, str]
    credit: PlainCredit

    def of(self, rows: pa.Table, redacted: pa.ChunkedArray, wanted: Collection[str]) -> pa.Table:
        """Make SHARD_ROWS of plain ones among wanted sessions.

        `rows` are ordered rows of one tenant's segments, `redacted` masks those with redacted
        text."""
        read = read_plain(rows, redacted, wanted, self.expected)
        fitting = [each for each in read if sum(each.counts) <= self.recipe.max_length]
        tables = [self._table(tokens, rows) for tokens in token_slices(fitting, self.expected)]
        return pa.concat_tables([SHARD_ROWS.empty_table(), *tables])

    def _table(self, tokens: TokenSlice, rows: pa.Table) -> pa.Table:
        sessions = tokens.parts
        names, offsets = [each.session_id for each in sessions], tokens.offsets.tolist()
        last = rows.select(["ts", "checkpoint", "source"]).take(
            pa.array([session.calls[-1].row for session in sessions])
        )
        licenses = [session.start.license for session in sessions]
        tokenizers = [
            tokenizer_names(each.tokenizer, self.expected, self.recipe) for each in sessions
        ]
        credits = [self.credit(each, _call_ends(tokens, at)) for at, each in enumerate(sessions)]
        columns: dict[str, Any] = {
            **{
                name: pa.repeat(pa.scalar(value, SHARD_ROWS.field(name).type), len(names))
                for name, value in _SAME.items()
            },
            **dict.fromkeys(("trajectory_id", "rollout_id", "session_id"), names),
            "sample_id": [
                sample_id(name, 0, tokens.ids[start:end], tokens.mask[start:end])
                for name, (start, end) in zip(names, pairwise(offsets), strict=True)
            ],
            "group_id": [session.start.group_id or session.session_id for session in sessions],
            "task_id": [session.start.task_id for session in sessions],
            "status": [session.end.status for session in sessions],
            "stop_reason": [session.end.stop_reason for session in sessions],
            "model_name": [session.model for session in sessions],
            "messages": [session.messages for session in sessions],
            "tools": [session.tools for session in sessions],
            "checkpoint_id": last["checkpoint"].combine_chunks(),
            "source_system": last["source"].combine_chunks(),
            "created_at": last["ts"].combine_chunks(),
            "license": [text if isinstance(text, str) else None for text in licenses],
            "consent": [self.consents.get(name, UNKNOWN) for name in names],
            "token_rewards": record_lists("token_rewards", credits),
            "tokenizer_sha256": [digest for digest, _ in tokenizers],
            "tokenizer_id": [name for _, name in tokenizers],
            "template_sha256": [session.template for session in sessions],
            **_number_columns(tokens),
            **_run_columns(tokens),
        }
        empty = {
            field.name: pa.nulls(len(names), field.type)
            for field in SHARD_ROWS
            if field.name not in columns
        }
        return pa.table(columns | empty, schema=SHARD_ROWS)


def _call_ends(tokens: TokenSlice, at: int) -> list[int]:
    first, last = tokens.lists[at], tokens.lists[at + 1]
    ends = tokens.list_offsets[first + 2 : last + 1 : 2] - tokens.offsets[at]
    return [int(end) for end in ends]


def _number_columns(tokens: TokenSlice) -> dict[str, pa.Array]:
    lengths, counts = np.diff(tokens.offsets), np.diff(tokens.list_offsets)
    known, flat, missing = tokens.has_logprobs, tokens.logprobs, None
    if not known.all():
        flat, missing = flat[np.repeat(known, lengths)], pa.array(~known)
    ends = np.append(0, np.cumsum(np.where(known, lengths, 0)))
    written = np.add.reduceat(counts * (np.arange(len(counts)) % 2), tokens.lists[:-1])
    return {
        "input_ids": _lists("input_ids", tokens.ids, tokens.offsets),
        "loss_mask": _lists("loss_mask", tokens.mask, tokens.offsets),
        "rollout_logprobs": _lists("rollout_logprobs", flat, ends, missing),
        "n_tokens": pa.array(lengths),
        "n_trainable": pa.array(written),
        "prompt_len": pa.array(counts[tokens.lists[:-1]]),
        "turn_spans": _spans(tokens),
    }


def _lists(
    name: str, values: NDArray[Any], offsets: NDArray[np.int64], missing: pa.Array | None = None
) -> pa.LargeListArray:
    kind = SHARD_ROWS.field(name).type
    flat = pa.array(values, kind.value_type)
    return pa.LargeListArray.from_arrays(pa.array(offsets), flat, type=kind, mask=missing)


def _spans(tokens: TokenSlice) -> pa.ListArray:
    """Make a span of each non-empty list."""
    kind = SHARD_ROWS.field("turn_spans").type
    fields = list(kind.value_type)
    calls = [call for part in tokens.parts for call in part.calls]
    starts, ends = tokens.list_offsets[:-1], tokens.list_offsets[1:]
    base = np.repeat(tokens.offsets[:-1], np.diff(tokens.lists))
    present = ends > starts
    sampled = np.arange(len(starts)) % 2 == 1
    turns = np.repeat(np.array([call.turn for call in calls], np.int32), 2)
    roles = np.full(len(starts), ASSISTANT, np.int8)
    roles[::2] = [call.after for call in calls]
    pairs = ((call.after_seq, call.seq) for call in calls)
    seqs = pa.array([seq for pair in pairs for seq in pair], pa.int64())
    columns = [starts - base, ends - base, turns, roles, sampled, seqs]
    kept = pa.array(present)
    arrays = [
        pa.array(column).filter(kept).cast(field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    records = pa.StructArray.from_arrays(arrays, fields=fields)
    places = np.append(0, np.cumsum(present))[tokens.lists]
    return pa.ListArray.from_arrays(pa.array(places.astype(np.int32)), records, type=kind)


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
    """Return temperature runs; None if unknown for a call."""
    runs: list[tuple[int, float]] = []
    first, base = tokens.lists[at], tokens.offsets[at]
    for number, value in enumerate(tokens.parts[at].temperatures):
        if value is None:
            return None
        if not runs or runs[-1][1] != value:
            runs.append((int(tokens.list_offsets[first + 2 * number + 1] - base), value))
    return tuple(runs)
