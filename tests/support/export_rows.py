"""Shards for tests of exports: rows whose messages and tokens say the same, and some that trainers
cannot hold."""

import importlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from penstock.backends.storage.object_store import FileStore
from penstock.shards.manifest import Manifest
from penstock.shards.schema import SORTED_BY
from penstock.shards.validation import ShardValidator
from penstock.shards.writer import PartLimits
from penstock_jobs.shards.export import EXPORT_NAME, ExportEmpty, ExportReport, export_shard
from tests.support.shards.making import make_routes, make_row, make_shard, stored_in, table_of

Row = dict[str, Any]
SPLITS = ("train", "eval")
EXAMPLES = settings(max_examples=10)
#: So that a shard of a few rows has several parts, and those several row groups.
TINY = PartLimits(part_bytes_target=6000, part_rows_target=6, row_group_bytes_max=2500)
TOOLS = '[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}]'
#: Written as a model would: white space and all.
ARGUMENTS = '{"path":  "a.py"}'
#: In the development group of pyproject.toml.
_NEEDED = ("datasets",)


def talked(
    group: str,
    rollout: int = 0,
    *,
    reward: float | None = 0.5,
    rendered: bool = False,
    said_before: bool = False,
    arguments: str = ARGUMENTS,
    **fields: Any,
) -> Row:
    """A prompt, an answer that calls a tool, its result, and an answer. With `said_before` the
    first answer is context: it was said elsewhere, and is not trained here."""
    branch = fields.pop("branch", 0)
    tokens = fields.pop("tokens", 14 + 2 * rollout + branch)
    row = make_row(group, rollout, branch=branch, branches=2, tokens=tokens)
    row["reward"] = reward
    row["messages"] = json.dumps(_messages(row, said_before, arguments), separators=(",", ":"))
    row["tools"] = TOOLS
    if said_before:
        _untrain(row, 1)
    if rendered:
        row |= {"token_source": "renderer", "template_sha256": "7e" * 32}
        row |= dict.fromkeys(
            ("rollout_logprobs", "policy_version_runs", "min_policy_version", "max_policy_version",
             "temperature")
        )  # fmt: skip
    return row | fields


def _messages(row: Row, said_before: bool, arguments: str) -> list[Row]:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}
    first = {"role": "assistant", "content": f"I look, {row['sample_id']}", "tool_calls": [call]}
    return [
        {"role": "system", "content": "You write code.\n"},
        {"role": "user", "content": f"make {row['group_id']} pass – “now”"},
        first | ({"weight": 0} if said_before else {}),
        {"role": "tool", "content": "def f(): ...", "tool_call_id": "c1", "name": "read"},
        {"role": "assistant", "content": "done", "reasoning_content": f"so be {row['sample_id']}"},
    ]


def _untrain(row: Row, number: int) -> None:
    span = row["turn_spans"][number]
    span["sampled"] = False
    inside = slice(span["start"], span["end"])
    for name in ("loss_mask", "rollout_logprobs"):
        row[name] = row[name].copy()
        row[name][inside] = 0
    row["n_trainable"] = int(row["loss_mask"].sum())
    row["prompt_len"] = int(np.flatnonzero(row["loss_mask"])[0])
    row["policy_version_runs"] = [{"start": row["prompt_len"], "version": 3}]


def hinted(row: Row, **fields: Any) -> Row:
    """With a hint about its first trained answer, before the last token of the prompt."""
    span = next(span for span in row["turn_spans"] if span["sampled"])
    hint: Row = {"hint": "the other file", "hint_kind": "follow_up", "hint_ids": [5, 6, 7]}
    hint |= {"hint_start": span["start"], "hint_end": span["end"], "hint_answer_free": True}
    hint |= {"hint_position": row["prompt_len"] - 1, "hint_session_id": row["session_id"]}
    return row | hint | fields


def unprompted(group: str) -> Row:
    """Begins with a trained token: nobody can say how likely that one was."""
    row = talked(group)
    first = row["prompt_len"]
    for name in ("input_ids", "loss_mask", "rollout_logprobs"):
        row[name] = row[name][first:]
    row["turn_spans"] = [
        span | {"start": span["start"] - first, "end": span["end"] - first}
        for span in row["turn_spans"]
        if span["start"] >= first
    ]
    row["policy_version_runs"] = [{"start": 0, "version": 3}]
    row["token_rewards"] = None
    return row | {"prompt_len": 0, "n_tokens": row["n_tokens"] - first}


ROWS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "reward": st.sampled_from([None, 0.0, 1.0, -1.0, 0.25]),
        "rendered": st.booleans(),
        "said_before": st.booleans(),
        "arguments": st.sampled_from([ARGUMENTS, "{}", '{"path": "a', "[1]"]),
        "advantage": st.sampled_from([None, 0.5, -0.75]),
        "loss_weight": st.sampled_from([1.0, 1.0, 0.5, 0.0]),
        "source_system": st.sampled_from([None, "editor"]),
        "tools": st.sampled_from([None, TOOLS]),
        "tokens": st.integers(6, 40),
    }
)


@st.composite
def shard_rows(draw: st.DrawFn) -> list[Row]:
    rows = []
    for group in range(draw(st.integers(1, 4))):
        split = draw(st.sampled_from(["train", "train", "eval"]))
        for rollout in range(draw(st.integers(1, 3))):
            rows += [
                talked(f"g{group}", rollout, branch=branch, split=split, **draw(ROWS))
                for branch in range(draw(st.integers(1, 2)))
            ]
    return in_order(rows)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in SORTED_BY))


@contextmanager
def exported(
    rows: list[Row], target: str, *, routed: bool = False
) -> Iterator[tuple[Path, ExportReport]]:
    """The rows as a shard of several parts, exported."""
    with TemporaryDirectory() as folder:
        store = FileStore(Path(folder, "store"))
        manifest = stored(store, rows, routed=routed)
        out = Path(folder, "out")
        try:
            told = export_shard(stored_in(store, manifest), target, out)
        except ExportEmpty as error:
            assert not out.exists()
            counts = re.findall(r"(\w+) (\d+)", str(error.facts["why"]))
            left_out = {reason: int(count) for reason, count in counts}
            assert sum(left_out.values()) == len(rows)
            yield out, ExportReport(manifest.id, target, 0, "", 0, left_out)
            return
        assert told.rows + sum(told.left_out.values()) == len(rows)
        found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
        assert found == {*told.files, EXPORT_NAME}
        yield out, told


def stored(store: FileStore, rows: list[Row], *, routed: bool = False) -> Manifest:
    """Rows of which the side file has experts say how many in `routed_rows`."""
    table = table_of(rows)
    routes = make_routes(table) if routed else None
    ShardValidator().check(table, routes)
    return make_shard(store, table, limits=TINY, routes=routes)


def in_table(out: Path, split: str, below: str = "") -> list[Row]:
    """The rows of a split, over the files of all parts."""
    tables = [pq.read_table(path) for path in sorted(Path(out, below).glob(f"{split}-*.parquet"))]
    found: list[Row] = pa.concat_tables(tables).to_pylist() if tables else []
    return found


def stripped(messages: list[Row]) -> list[Row]:
    """Without the fields that a column of messages has and a message does not."""
    return [{name: value for name, value in one.items() if value is not None} for one in messages]


def of_split(rows: list[Row], split: str) -> list[Row]:
    return [row for row in rows if row["split"] == split]


def is_trained(row: Row) -> bool:
    return bool(row["n_trainable"] and row["loss_weight"])


def trained_of(rows: list[Row], split: str) -> list[Row]:
    return [row for row in of_split(rows, split) if is_trained(row)]


def floats(values: Any) -> list[float]:
    found: list[float] = np.asarray(values, np.float32).astype(float).tolist()
    return found


def library(name: str) -> Any:
    """The target's own library. Skips where it is not installed; with CI in the environment one
    that development needs is missed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        why = f"{name} is not installed, so what it makes of the files is not tried"
        if os.environ.get("CI") and name in _NEEDED:
            pytest.fail(why)
        pytest.skip(why)
