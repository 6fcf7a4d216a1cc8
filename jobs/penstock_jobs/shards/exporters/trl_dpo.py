"""trl-dpo: pairs of answers to one prompt, for TRL's DPO.

Files: `train-00000.parquet`, `eval-00000.parquet`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `messages` before the first trained answer | `prompt`, a list of structs |
| the others of the row with the highest `reward` | `chosen`, likewise |
| the others of the row with the lowest | `rejected`, likewise |
| `tools` | `tools`, the same JSON text, or null |

A pair is of one group, one prompt and the same tools. There is at most one for each: best against
worst, of equal ones the first in the shard's order.

Alignment: none, there are no tokens; fields that a message does not have are null.

Lost: tokens and masks: TRL takes its loss over the whole completion, results of tools in it
included. The rewards themselves, what lies between best and worst, policy versions, loss weights
other than 0, lineage.

Left out: `not_trained`, `no_reward`, `no_messages`, `unknown_message_form`, `no_trained_answer`,
`no_prompt`, `untrained_answer`, `no_pair`, `between`. Counted: `pairs`, `groups_without_pair`.

Written for TRL 1.16.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from penstock.shards.manifest import PartFile
from penstock_jobs.shards.export import (
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    exported_mask,
    file_stem,
)
from penstock_jobs.shards.exporters.dialogue import MESSAGES, DialogueMessage, plain, read_split

_COLUMNS = ("group_id", "split", "messages", "tools", "reward", *WEIGHING)
_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "tools": pa.large_string()}
)


@dataclass
class _Rivals:
    """The best and the worst answer to a prompt so far."""

    prompt: list[DialogueMessage]
    tools: str | None
    split: str
    best: tuple[float, list[DialogueMessage]]
    worst: tuple[float, list[DialogueMessage]]
    rows: int = 0

    def add(self, reward: float, completion: list[DialogueMessage]) -> None:
        self.rows += 1
        if reward > self.best[0]:
            self.best = reward, completion
        if reward < self.worst[0]:
            self.worst = reward, completion


def write(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        for _, rows in groupby(_rows(source, part, output), lambda row: row["group_id"]):
            # Two answers for each prompt of the group are held.
            rivals: dict[tuple[Any, ...], _Rivals] = {}
            for row in rows:
                answer = read_split(row["messages"]) if row["exported"] else None
                if isinstance(answer, str):
                    output.leave_out(answer)
                elif answer is not None:
                    scored = (row["reward"], answer.completion)
                    key = (row["split"], row["tools"], repr(answer.prompt))
                    first = _Rivals(answer.prompt, row["tools"], row["split"], scored, scored)
                    rivals.setdefault(key, first).add(*scored)
            _write_pairs(rivals.values(), output, number)
        output.end_files()


def _rows(source: ShardSource, part: PartFile, output: ExportOutput) -> Any:
    for table in source.tables(part, _COLUMNS):
        mask = pa.array(exported_mask(table, output, "not_trained", "no_reward"))
        yield from table.append_column("exported", mask).to_pylist()


def _write_pairs(rivals_of_group: Iterable[_Rivals], output: ExportOutput, number: int) -> None:
    pairs = 0
    for rivals in rivals_of_group:
        (best, chosen), (worst, rejected) = rivals.best, rivals.worst
        if best == worst or chosen == rejected:
            output.leave_out("no_pair", rivals.rows)
            continue
        pairs += 1
        output.leave_out("between", rivals.rows - 2)
        texts = {"prompt": rivals.prompt, "chosen": chosen, "rejected": rejected}
        pair = {name: plain(messages) for name, messages in texts.items()}
        table = pa.Table.from_pylist([pair | {"tools": rivals.tools}], _SCHEMA)
        output.table(f"{file_stem(rivals.split, number)}.parquet", table)
    output.rows += 2 * pairs
    output.counted["pairs"] += pairs
    output.counted["groups_without_pair"] += not pairs


EXPORTER = Exporter("trl-dpo", 1, "TRL 1.16", write)
