"""The rows of plain sessions, one each, as columns: what `samples` says of them, byte for byte."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.shards.schema import SHARD_ROWS
from penstock_jobs.shards.engine_branches import ASSISTANT
from penstock_jobs.shards.plain_sessions import PlainCall, PlainSession, read_plain
from penstock_jobs.shards.plain_tokens import (
    PlainTokens,
    TokenSlice,
    read_plain_tokens,
    token_slices,
)
from penstock_jobs.shards.samples import UNKNOWN, SampleOptions, record_lists, tokenizer_names
from penstock_jobs.shards.token_credit import TokenRewards
from penstock_jobs.shards.token_payload import ExpectedTokens

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
            _tokenizers(tokens, self.expected, self.options) | _numbers(tokens) | _runs(tokens)
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


def _numbers(tokens: TokenSlice) -> dict[str, pa.Array]:
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


def _runs(tokens: TokenSlice) -> dict[str, Any]:
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
