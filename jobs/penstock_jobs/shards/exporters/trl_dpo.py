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

Left out: `not_trained`, `no_reward` (null is not 0); `no_messages`, `unknown_message_form`,
`no_trained_answer`, `no_prompt`, `untrained_answer` as for trl-kto; `no_pair` (all of the prompt
have one reward, or best and worst say the same); `between` (neither best nor worst).

Counted: `pairs`, and `groups_without_pair`.

Written for TRL 1.16.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock_jobs.shards.export import (
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    file_stem,
    kept,
)
from penstock_jobs.shards.exporters.dialogue import (
    MESSAGES,
    DialogueMessage,
    DialogueSplit,
    plain,
    read_split,
)

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
    rows: int = 1

    def add(self, reward: float, completion: list[DialogueMessage]) -> None:
        self.rows += 1
        if reward > self.best[0]:
            self.best = reward, completion
        if reward < self.worst[0]:
            self.worst = reward, completion

    @property
    def differ(self) -> bool:
        return self.best[0] > self.worst[0] and self.best[1] != self.worst[1]


class _Group:
    """The group that is being read. Holds two answers for each of its prompts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rivals: dict[tuple[Any, ...], _Rivals] = {}

    def add(self, row: dict[str, Any], answer: DialogueSplit) -> None:
        key = (row["split"], row["tools"], repr(answer.prompt))
        if key in self._rivals:
            self._rivals[key].add(row["reward"], answer.completion)
        else:
            scored = (row["reward"], answer.completion)
            self._rivals[key] = _Rivals(answer.prompt, row["tools"], row["split"], scored, scored)

    def end(self, output: ExportOutput, number: int) -> None:
        pairs = 0
        for rivals in self._rivals.values():
            if not rivals.differ:
                output.leave_out("no_pair", rivals.rows)
                continue
            pairs += 1
            output.rows += 2
            output.leave_out("between", rivals.rows - 2)
            output.table(f"{file_stem(rivals.split, number)}.parquet", _pair(rivals))
        output.counted["pairs"] += pairs
        output.counted["groups_without_pair"] += not pairs


def write(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        group: _Group | None = None
        for table in source.tables(part, _COLUMNS):
            names = table["group_id"].to_pylist()
            mask = pa.array(kept(table, output, "not_trained", "no_reward"))
            rows = table.append_column("kept", mask).to_pylist()
            for name, row in zip(names, rows, strict=True):
                if group is None or group.name != name:
                    if group:
                        group.end(output, number)
                    group = _Group(name)
                if row["kept"]:
                    _add(group, row, output)
        if group:
            group.end(output, number)
        output.end_files()


def _add(group: _Group, row: dict[str, Any], output: ExportOutput) -> None:
    answer = read_split(row["messages"])
    if isinstance(answer, DialogueSplit):
        group.add(row, answer)
    else:
        output.leave_out(answer)


def _pair(rivals: _Rivals) -> pa.Table:
    pair = {
        "prompt": plain(rivals.prompt),
        "chosen": plain(rivals.best[1]),
        "rejected": plain(rivals.worst[1]),
        "tools": rivals.tools,
    }
    return pa.Table.from_pylist([pair], _SCHEMA)


EXPORTER = Exporter("trl-dpo", 1, "TRL 1.16", write)
