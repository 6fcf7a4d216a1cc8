"""trl-kto: single answers that were wanted or not, for TRL's KTO.

Files: `train-00000.parquet`, `eval-00000.parquet`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `messages` before the first trained answer | `prompt`, a list of structs |
| `messages` from there on | `completion`, likewise |
| `reward` | `label`: true above 0, false below |
| `tools` | `tools`, the same JSON text, or null |

Alignment: none, there are no tokens; fields that a message does not have are null.

Lost: tokens and masks: TRL takes its loss over the whole completion, results of tools in it
included. How large a reward is, its parts, policy versions, loss weights other than 0, lineage.

Left out: `not_trained`; `no_reward` (null is not 0); `reward_0` (it has no sign); `no_messages`,
`unknown_message_form`, `no_trained_answer`, `no_prompt`; `untrained_answer` (an answer that must
not be trained stands behind the first that is, and TRL has no weight for it).

Written for TRL 1.16.
"""

from typing import Any

import pyarrow as pa

from penstock_jobs.shards.export import (
    WEIGHING,
    Exporter,
    Output,
    Source,
    by_split,
    file_of,
    keep,
    missing,
    untrained,
)
from penstock_jobs.shards.exporters.dialogue import MESSAGES, Split, plain, read_split

_COLUMNS = ("split", "messages", "tools", "reward", *WEIGHING)
_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "completion": MESSAGES, "label": pa.bool_(), "tools": pa.large_string()}
)


def write(source: Source, output: Output) -> None:
    for number, part in source.parts():
        for table in source.tables(part, _COLUMNS):
            kept = keep(
                table,
                output,
                ("not_trained", untrained(table)),
                ("no_reward", missing(table, "reward")),
                ("reward_0", table["reward"].to_numpy() == 0),
            )
            for split, rows in by_split(kept):
                shown = _shown(rows, output)
                output.table(file_of(split, number), pa.Table.from_pylist(shown, _SCHEMA))
                output.rows += len(shown)
        output.end_files()


def _shown(rows: pa.Table, output: Output) -> list[dict[str, Any]]:
    shown = []
    for row in rows.select(["messages", "tools", "reward"]).to_pylist():
        told = read_split(row["messages"])
        if not isinstance(told, Split):
            output.leave_out(told)
            continue
        prompt, completion = plain(told.prompt), plain(told.completion)
        label = row["reward"] > 0
        shown.append(
            {"prompt": prompt, "completion": completion, "label": label, "tools": row["tools"]}
        )
    return shown


EXPORTER = Exporter("trl-kto", 1, "TRL 1.16", write)
