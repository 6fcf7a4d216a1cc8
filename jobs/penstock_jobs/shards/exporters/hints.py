"""Exports of hint rows: prompts with hints for TRL 1.16, and all that a loss of one's own needs.

trl-sdpo, trl-sdft: `prompt`, the messages before the first trained answer, and
`privileged_context`, the hint. Both trainers put the hint into the last message, which is to be the
user's.

hints-jsonl: a line for each row. The recorded completion is `input_ids` from `prompt_len` on; a
teacher reads `input_ids[:p] + hint_ids + input_ids[p:]`, where p is `hint_position`.
"""

from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa

from penstock.shards.schema import HINT_COLUMNS
from penstock_jobs.shards.export import (
    TOKENS,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    token_rows,
)
from penstock_jobs.shards.exporters.messages import MESSAGES, plain, read_split

_REASONS = ("not_trained", "no_hint")

# trl-sdpo, trl-sdft


_PROMPT_COLUMNS = ("split", "messages", "hint", *WEIGHING)
_PROMPTS = pa.schema({"prompt": MESSAGES, "privileged_context": pa.large_string()})


def _write_prompts(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_PROMPT_COLUMNS, output, *_REASONS):
        exported = []
        for row in rows.to_pylist():
            parts = read_split(row["messages"], all_trained=False)
            if isinstance(parts, str):
                output.leave_out(parts)
            elif parts.prompt[-1].role != "user":
                output.leave_out("no_user_last")
            else:
                prompt = {"prompt": plain(parts.prompt), "privileged_context": row["hint"]}
                exported.append(prompt)
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _PROMPTS))
        output.rows += len(exported)


_ANEW = (
    "The trainer generates anew: it reads no recorded completion and no log-probability, and cuts"
    " prompts from the left at max_prompt_length, 512 tokens unless told otherwise, and completions"
    " at max_completion_length, 256."
)
SDPO = Exporter(
    "trl-sdpo",
    1,
    "TRL 1.16",
    _write_prompts,
    note=f"{_ANEW} Set include_environment_feedback=True, or hints are ignored. With one generation"
    " a prompt set use_successful_as_teacher=False too: nothing but the sample itself could be the"
    " demonstration. It needs reward_funcs.",
)
SDFT = Exporter(
    "trl-sdft",
    1,
    "TRL 1.16",
    _write_prompts,
    note=f"{_ANEW} The limit of prompts holds for the teacher's too, hint included.",
)


# hints-jsonl


_LINE_COLUMNS = (
    "sample_id", "session_id", "split", "messages", "tools", *TOKENS, "prompt_len", "n_tokens",
    "min_policy_version", "max_policy_version", "temperature", "reward", "advantage",
    *HINT_COLUMNS, *WEIGHING,
)  # fmt: skip


def _write_lines(source: ShardSource, output: ExportOutput) -> None:
    encode: Callable[[object], bytes] = msgspec.json.Encoder(enc_hook=np.ndarray.tolist).encode
    for file, rows in source.splits(_LINE_COLUMNS, output, *_REASONS):
        for row in token_rows(rows):
            for name in ("messages", "tools"):
                row[name] = msgspec.json.decode(row[name] or "null")
            del row["split"], row["routed_experts"], row["n_trainable"]
            output.line(f"{file}.jsonl", encode(row))
        output.rows += rows.num_rows


JSONL = Exporter("hints-jsonl", 1, "lines of JSON", _write_lines)
