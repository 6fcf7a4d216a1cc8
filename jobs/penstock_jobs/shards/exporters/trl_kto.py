"""trl-kto: single answers that were wanted or not, for TRL's KTO.

Files: `train-00000.parquet`, `eval-00000.parquet`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `messages` before the first trained answer | `prompt`, a list of structs |
| `messages` from there on | `completion`, likewise |
| `reward` | `label`: true above 0, false below |
| `preferences`: an answer that was asked for again | an example whose `label` is false |
| `tools` | `tools`, the same JSON text, or null |

An answer that was asked for again is false whatever its session is worth. Where it stands in a row,
the row ends before it.

Alignment: none, there are no tokens; fields that a message does not have are null.

Lost: tokens and masks: TRL takes its loss over the whole completion, results of tools in it
included. How large a reward is, its parts, policy versions, loss weights other than 0, lineage.

Left out: `not_trained`, `no_reward`, `reward_0`, `no_messages`, `unknown_message_form`,
`no_trained_answer`, `no_prompt`, `untrained_answer`. Counted: `asked_again`, the examples of such
answers.

Written for TRL 1.16.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource
from penstock_jobs.shards.exporters.dialogue import (
    MESSAGES,
    DialogueMessage,
    plain,
    read_preferences,
    read_split,
)

_COLUMNS = ("split", "messages", "tools", "reward", "preferences", *WEIGHING)
_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "completion": MESSAGES, "label": pa.bool_(), "tools": pa.large_string()}
)


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_COLUMNS, output, "not_trained"):
        exported = []
        for row in rows.to_pylist():
            examples = list(_examples(row, output))
            exported += [example | {"tools": row["tools"]} for example in examples]
            output.rows += bool(examples)
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _SCHEMA))


def _examples(row: dict[str, Any], output: ExportOutput) -> Iterator[dict[str, Any]]:
    """Where there is none, the row is left out."""
    answer = read_split(row["messages"])
    if isinstance(answer, str):
        output.leave_out(answer)
        return
    prompt, completion = answer
    again = [own for own in read_preferences(row["preferences"]) if own.kind == "regenerated"]
    for preference in again:
        messages = [*prompt, *completion]
        yield _example(messages[: preference.prompt], preference.rejected, label=False)
    output.counted["asked_again"] += len(again)
    ends = [own.prompt - len(prompt) for own in again if own.is_end_of([*prompt, *completion])]
    completion = completion[: min(ends)] if ends else completion
    while completion and completion[-1].role != "assistant":
        completion = completion[:-1]
    reason = "no_reward" if row["reward"] is None else "reward_0" if not row["reward"] else None
    if completion and reason is None:
        yield _example(prompt, completion, label=row["reward"] > 0)
    elif reason is not None and not again:
        output.leave_out(reason)


def _example(
    prompt: list[DialogueMessage], completion: list[DialogueMessage], *, label: bool
) -> dict[str, Any]:
    return {"prompt": plain(prompt), "completion": plain(completion), "label": label}


EXPORTER = Exporter("trl-kto", 2, "TRL 1.16", write)
