"""Exports for TRL 1.16. docs/exporters.md says which columns each has.

trl-sft: a row is written once. What an engine read and wrote goes to `tokens`, for it is exact,
with `labels` of -100 where nothing is trained: TRL would ignore a `completion_mask` beside ids.
Rendered text goes to `messages`, so that the trainer's own template renders it; set
`assistant_only_loss=True`. Where messages cannot say what is trained, its ids go to `tokens` too.

trl-grpo: the keys that a `rollout_func` returns, and `advantage` as asynchronous GRPO has it.
`GRPOTrainer` makes advantages of its own, and heeds `logprobs` with vLLM alone:
examples/trainers/trl_grpo.py puts both back.

trl-kto: the label is true for a reward above 0, false below. An answer that was asked for again is
an example whose label is false; where it stands in a row, the row ends before it.

trl-dpo: pairs of what the user left of an edit and what the agent had written, of an answer and the
one before it that was asked for again, and of the attempts of a group. Those of a group have one
prompt and the same tools, at most one pair each: best against worst, of equal ones the first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.shards.manifest import PartFile
from penstock.shards.schema import Rows
from penstock_jobs.shards.conversation import OpenAiMessage
from penstock_jobs.shards.export import (
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    cut_lists,
    exported_mask,
    file_stem,
    whole_lists,
)
from penstock_jobs.shards.exporters.dialogue import (
    MESSAGES,
    has_untrained,
    plain,
    read_dialogue,
    read_preferences,
    read_split,
)

# trl-sft


_SFT_COLUMNS = (
    "split", "token_source", "input_ids", "loss_mask", "n_tokens", "messages", "tools", *WEIGHING,
)  # fmt: skip
_SFT_TOKENS = pa.schema({"input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32())})
#: What the loss of PyTorch passes over.
_IGNORED = -100
_SFT_MESSAGES = pa.schema({"messages": MESSAGES, "tools": pa.large_string()})


def _write_sft(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_SFT_COLUMNS, output, "not_trained"):
        as_messages = np.zeros(rows.num_rows, bool)
        exported = []
        rendered = pc.equal(rows["token_source"], "renderer").to_numpy()
        for at in np.flatnonzero(rendered).tolist():
            messages = read_dialogue(rows["messages"][at].as_py())
            if not isinstance(messages, str) and not has_untrained(messages):
                as_messages[at] = True
                exported.append({"messages": plain(messages), "tools": rows["tools"][at].as_py()})
        output.table(f"messages/{file}.parquet", pa.Table.from_pylist(exported, _SFT_MESSAGES))
        others = rows.filter(pa.array(~as_messages))
        output.table(f"tokens/{file}.parquet", _tokens(Rows(others)))
        output.rows += rows.num_rows


def _tokens(rows: Rows) -> pa.Table:
    ids, mask = whole_lists(rows, "input_ids"), whole_lists(rows, "loss_mask")
    values = np.where(mask.values.to_numpy(), ids.values.to_numpy(), np.int32(_IGNORED))
    labels = pa.ListArray.from_arrays(ids.offsets, pa.array(values))
    return pa.Table.from_arrays([ids, labels], schema=_SFT_TOKENS)


SFT = Exporter("trl-sft", 2, "TRL 1.16", _write_sft)


# trl-grpo


_GRPO_COLUMNS = (
    "split", "input_ids", "loss_mask", "rollout_logprobs", "prompt_len", "n_tokens", "advantage",
    *WEIGHING,
)  # fmt: skip
_GRPO_REASONS = ("not_trained", "no_logprobs", "no_advantage", "no_prompt")
_GRPO_SCHEMA = pa.schema(
    {
        "prompt_ids": pa.list_(pa.int32()),
        "completion_ids": pa.list_(pa.int32()),
        "logprobs": pa.list_(pa.float32()),
        "env_mask": pa.list_(pa.uint8()),
        "advantage": pa.float32(),
    }
)


def _write_grpo(source: ShardSource, output: ExportOutput) -> None:
    for file, table in source.splits(_GRPO_COLUMNS, output, *_GRPO_REASONS):
        rows = Rows(table)
        first = rows.numbers("prompt_len").astype("int64")
        completion = ("input_ids", "rollout_logprobs", "loss_mask")
        columns = [
            cut_lists(rows, "input_ids", 0 * first, first),
            *(cut_lists(rows, name, first, rows.tokens) for name in completion),
            rows.column("advantage"),
        ]
        output.table(f"{file}.parquet", pa.Table.from_arrays(columns, schema=_GRPO_SCHEMA))
        output.rows += table.num_rows


GRPO = Exporter("trl-grpo", 1, "TRL 1.16", _write_grpo)


# trl-kto


_KTO_COLUMNS = ("split", "messages", "tools", "reward", "preferences", *WEIGHING)
_KTO_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "completion": MESSAGES, "label": pa.bool_(), "tools": pa.large_string()}
)


def _write_kto(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_KTO_COLUMNS, output, "not_trained"):
        exported = []
        for row in rows.to_pylist():
            examples = list(_examples(row, output))
            exported += [example | {"tools": row["tools"]} for example in examples]
            output.rows += bool(examples)
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _KTO_SCHEMA))


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
    prompt: list[OpenAiMessage], completion: list[OpenAiMessage], *, label: bool
) -> dict[str, Any]:
    return {"prompt": plain(prompt), "completion": plain(completion), "label": label}


KTO = Exporter("trl-kto", 2, "TRL 1.16", _write_kto)


# trl-dpo


_DPO_COLUMNS = ("group_id", "split", "messages", "tools", "reward", "preferences", *WEIGHING)
_DPO_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "tools": pa.large_string()}
)
_Answer = list[OpenAiMessage]


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


def _write_dpo(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        for _, rows in groupby(_rows(source, part, output), lambda row: row["group_id"]):
            _write_group(rows, output, number)
        output.end_files()


def _rows(source: ShardSource, part: PartFile, output: ExportOutput) -> Iterator[dict[str, Any]]:
    for table in source.tables(part, _DPO_COLUMNS):
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
    output.table(name, pa.Table.from_pylist([pair | {"tools": tools}], _DPO_SCHEMA))


DPO = Exporter("trl-dpo", 2, "TRL 1.16", _write_dpo)
