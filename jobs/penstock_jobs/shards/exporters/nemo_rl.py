"""nemo-rl: message logs with their tokens (a `DatumSpec`), and preferences, for NeMo-RL of 2026-08.

The tokens of a message log, one message after the other, are `input_ids`; a message is a span of
`turn_spans`. `generation_logprobs` mark what is trained; 0.0 in rendered rows, which are for SFT.
Lists of numbers become tensors before `add_grpo_token_loss_masks_and_generation_logprobs`.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from penstock.shards.schema import ROLES
from penstock_jobs.shards.export import (
    TOKENS,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    token_rows,
)
from penstock_jobs.shards.exporters.messages import read_dialogue, read_preferences, stripped

_FACTS = (
    "reward", "advantage", "group_id", "sample_id", "min_policy_version", "max_policy_version",
    "token_source",
)  # fmt: skip
_COLUMNS = (
    "split", "input_ids", "loss_mask", "rollout_logprobs", "turn_spans", "n_tokens", "task_id",
    "source_system", "messages", "preferences", *_FACTS, *WEIGHING,
)  # fmt: skip


def write(source: ShardSource, output: ExportOutput) -> None:
    counts: Counter[str] = Counter()
    for file, table in source.splits(_COLUMNS, output, "not_trained"):
        for row in token_rows(table):
            datum = {
                "message_log": list(_message_log(row)),
                "length": row["n_tokens"],
                "loss_multiplier": row["loss_weight"],
                "idx": counts[file],
                "task_name": row["task_id"] or row["source_system"] or "penstock",
                "extra_env_info": {name: row[name] for name in _FACTS},
            }
            counts[file] += 1
            output.line(f"message_logs/{file}.jsonl", msgspec.json.encode(datum))
            _write_preferences(row, output, f"preferences/{file}.jsonl")
        output.rows += table.num_rows


def _message_log(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message is cut where training begins or ends, and tokens between spans are one too."""
    ids, mask, logprobs = (row[name] for name in TOKENS)
    roles = np.full(len(ids), ROLES.index("user"))
    edges = {0, len(ids), *(np.flatnonzero(np.diff(mask)) + 1).tolist()}
    for span in row["turn_spans"]:
        roles[span["start"] : span["end"]] = span["role"]
        edges |= {span["start"], span["end"]}
    for start, end in pairwise(sorted(edges)):
        message = {"role": ROLES[roles[start]], "content": "", "token_ids": ids[start:end].tolist()}
        if mask[start]:
            own = np.zeros(end - start) if logprobs is None else logprobs[start:end]
            message["generation_logprobs"] = own.tolist()
        yield message


def _write_preferences(row: dict[str, Any], output: ExportOutput, name: str) -> None:
    preferences = read_preferences(row["preferences"])
    messages = read_dialogue(row["messages"]) if preferences else "no_messages"
    if isinstance(messages, str):
        return
    for preference in preferences:
        sides = enumerate((preference.chosen, preference.rejected))
        pair = {
            "context": stripped(messages[: preference.prompt]),
            "completions": [{"rank": n, "completion": stripped(side)} for n, side in sides],
        }
        output.line(name, msgspec.json.encode(pair))
        output.counted["preferences"] += 1


EXPORTER = Exporter("nemo-rl", 1, "NeMo-RL, 2026-08", write)
