"""trl-dpo: pairs of answers to one prompt, for TRL's DPO.

Files: `train-00000.parquet`, `eval-00000.parquet`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `messages` before both answers of one of its `preferences` | `prompt`, a list of structs |
| `preferences`: `chosen`, `rejected` | `chosen`, `rejected`, likewise |
| `messages` before the first trained answer | `prompt`, for pairs of a group |
| the others of the row with the highest `reward` | `chosen` |
| the others of the row with the lowest | `rejected` |
| `tools` | `tools`, the same JSON text, or null |

Pairs are of what the user left of an edit and what the agent had written (`edited`, `edited_text`),
of an answer and the one before it that was asked for again (`regenerated`), and of the attempts of
a group (`group`). Those of a group have one prompt and the same tools. There is at most one for
each: best against worst, of equal ones the first in the shard's order.

Alignment: none, there are no tokens; fields that a message does not have are null.

Lost: tokens and masks: TRL takes its loss over the whole completion, results of tools in it
included. The rewards themselves, what lies between best and worst, policy versions, loss weights
other than 0, lineage.

Left out, of rows that are in no pair: `not_trained`, `no_reward`, `no_messages`,
`unknown_message_form`, `no_trained_answer`, `no_prompt`, `untrained_answer`, `no_pair`, `between`.
Counted: `pairs`, `groups_without_pair`; `pairs_edited`, `pairs_edited_text`, `pairs_regenerated`,
`pairs_group`.

Written for TRL 1.16.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
from penstock_jobs.shards.exporters.dialogue import (
    MESSAGES,
    DialogueMessage,
    plain,
    read_dialogue,
    read_preferences,
    read_split,
)

_COLUMNS = ("group_id", "split", "messages", "tools", "reward", "preferences", *WEIGHING)
_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "tools": pa.large_string()}
)
_Answer = list[DialogueMessage]


@dataclass
class _Rivals:
    """The best and the worst answer to a prompt so far, each with the number of its row."""

    prompt: _Answer
    tools: str | None
    split: str
    best: tuple[float, int, _Answer]
    worst: tuple[float, int, _Answer]
    rows: list[int] = field(default_factory=list)

    def add(self, reward: float, row: int, completion: _Answer) -> None:
        self.rows.append(row)
        if reward > self.best[0]:
            self.best = reward, row, completion
        if reward < self.worst[0]:
            self.worst = reward, row, completion


def write(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        for _, rows in groupby(_rows(source, part, output), lambda row: row["group_id"]):
            _write_group(rows, output, number)
        output.end_files()


def _rows(source: ShardSource, part: PartFile, output: ExportOutput) -> Iterator[dict[str, Any]]:
    for table in source.tables(part, _COLUMNS):
        mask = pa.array(exported_mask(table, output, "not_trained"))
        yield from table.append_column("exported", mask).to_pylist()


def _write_group(rows: Iterable[dict[str, Any]], output: ExportOutput, number: int) -> None:
    """Two answers for each prompt of the group are held. Each row is counted once: as in a pair,
    or by why it is in none."""
    rivals: dict[tuple[Any, ...], _Rivals] = {}
    reasons: dict[int, str | None] = {}
    unscored: dict[int, tuple[Any, ...]] = {}
    answers: Counter[tuple[Any, ...]] = Counter()
    exported = (row for row in rows if row["exported"])
    for at, row in enumerate(exported):
        answer = read_split(row["messages"])
        reasons[at] = answer if isinstance(answer, str) else None
        if not isinstance(answer, str):
            key = (row["split"], row["tools"], repr(answer.prompt))
            answers[key] += 1
            if row["reward"] is None:
                unscored[at] = key
            else:
                scored = (row["reward"], at, answer.completion)
                first = _Rivals(answer.prompt, row["tools"], row["split"], scored, scored)
                rivals.setdefault(key, first).add(*scored)
        if _write_preferences(row, output, number):
            reasons[at] = "paired"
    for at, key in unscored.items():  # alone, it would be in no pair with a reward either
        reasons[at] = reasons[at] or ("no_reward" if answers[key] > 1 else "no_pair")
    pairs = 0
    for own in rivals.values():
        (best, chosen_row, chosen), (worst, rejected_row, rejected) = own.best, own.worst
        is_pair = best != worst and chosen != rejected
        for at in own.rows:
            reasons[at] = reasons[at] or ("between" if is_pair else "no_pair")
        if is_pair:
            reasons |= {chosen_row: "paired", rejected_row: "paired"}
            texts = {"prompt": own.prompt, "chosen": chosen, "rejected": rejected}
            _write_pair(texts, own.tools, output, f"{file_stem(own.split, number)}.parquet")
            output.counted["pairs_group"] += 1
            pairs += 1
    counts = Counter(reasons.values())
    output.rows += counts.pop("paired", 0)
    for reason, count in counts.items():
        output.leave_out(reason or "no_pair", count)
    output.counted["pairs"] += pairs
    output.counted["groups_without_pair"] += not pairs


def _write_preferences(row: dict[str, Any], output: ExportOutput, number: int) -> int:
    """How many there are."""
    pairs = read_preferences(row["preferences"])
    messages = read_dialogue(row["messages"]) if pairs else ()
    if isinstance(messages, str):
        return 0
    for pair in pairs:
        texts = {"prompt": [*messages[: pair.prompt]]}
        texts |= {"chosen": pair.chosen, "rejected": pair.rejected}
        _write_pair(texts, row["tools"], output, f"{file_stem(row['split'], number)}.parquet")
        output.counted[f"pairs_{pair.kind}"] += 1
    output.counted["pairs"] += len(pairs)
    return len(pairs)


def _write_pair(
    texts: dict[str, _Answer], tools: str | None, output: ExportOutput, name: str
) -> None:
    pair = {column: plain(messages) for column, messages in texts.items()}
    output.table(name, pa.Table.from_pylist([pair | {"tools": tools}], _SCHEMA))


EXPORTER = Exporter("trl-dpo", 2, "TRL 1.16", write)
