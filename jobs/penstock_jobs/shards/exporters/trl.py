"""Exports for TRL 1.16. docs/training.md says which columns each has.

trl-sft: exact tokens of an engine go to `tokens`, with `labels` -100 for untrained ones, since TRL
ignores a `completion_mask` beside ids. Rendered rows go to `messages`, for the trainer's own
template; set `assistant_only_loss=True`. If messages cannot express what is trained, the ids go to
`tokens` too.

trl-grpo: the keys that a `rollout_func` returns, and `advantage` as asynchronous GRPO has it.
`GRPOTrainer` computes its own advantages and uses `logprobs` only with vLLM:
examples/trainers/trl_grpo.py restores both.

trl-kto: a row ends before an answer that was asked for again.

trl-dpo: pairs the best and the worst answer to each prompt of a group, with the same tools.

trl-sdpo, trl-sdft: `prompt`, the messages before the first trained answer, and
`privileged_context`, the hint. Both trainers put the hint into the last message, which is to be the
user's.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.shards.schema import Rows
from penstock_jobs.shards.conversation.conversation import OpenAiMessage
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
from penstock_jobs.shards.exporters.messages import (
    MESSAGES,
    DialogueSplit,
    has_untrained,
    plain,
    read_dialogue,
    read_pairs,
    read_preferences,
    read_split,
)

# trl-sft


_SFT_COLUMNS = (
    "split", "token_source", "input_ids", "loss_mask", "n_tokens", "messages", "tools", *WEIGHING,
)  # fmt: skip
_SFT_TOKENS = pa.schema({"input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32())})
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
            exported += examples
            output.rows += bool(examples)
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _KTO_SCHEMA))


def _examples(row: dict[str, Any], output: ExportOutput) -> Iterator[dict[str, Any]]:
    """Yield examples of a row; a row without any is left out."""
    answer = read_split(row["messages"])
    if isinstance(answer, str):
        output.leave_out(answer)
        return
    prompt, completion = answer
    told = [*prompt, *completion]

    def example(
        prompt: list[OpenAiMessage], completion: list[OpenAiMessage], *, label: bool
    ) -> dict[str, Any]:
        texts = {"prompt": plain(prompt), "completion": plain(completion)}
        return texts | {"label": label, "tools": row["tools"]}

    again = [own for own in read_preferences(row["preferences"]) if own.kind == "regenerated"]
    for preference in again:
        yield example(told[: preference.prompt], preference.rejected, label=False)
    output.counted["asked_again"] += len(again)
    ends = [own.prompt - len(prompt) for own in again if own.is_end_of(told)]
    completion = completion[: min(ends)] if ends else completion
    while completion and completion[-1].role != "assistant":
        completion = completion[:-1]
    reason = "no_reward" if row["reward"] is None else "reward_0" if not row["reward"] else None
    if completion and reason is None:
        yield example(prompt, completion, label=row["reward"] > 0)
    elif reason is not None and not again:
        output.leave_out(reason)


KTO = Exporter("trl-kto", 2, "TRL 1.16", _write_kto)


# trl-dpo


_DPO_COLUMNS = ("group_id", "split", "messages", "tools", "reward", "preferences", *WEIGHING)
_DPO_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "tools": pa.large_string()}
)


def _write_dpo(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        tables = source.tables(part, _DPO_COLUMNS)
        rows = (row for table in tables for row in _with_marks(table, output))
        for _, group in groupby(rows, lambda row: row["group_id"]):
            _write_group([row for row in group if row["exported"]], output, number)
        output.end_files()


def _with_marks(table: pa.Table, output: ExportOutput) -> list[dict[str, Any]]:
    """Mark exported rows, so that a left-out group counts as one without a pair."""
    mask = pa.array(exported_mask(table, output, "not_trained"))
    rows: list[dict[str, Any]] = table.append_column("exported", mask).to_pylist()
    return rows


def _write_group(rows: list[dict[str, Any]], output: ExportOutput, number: int) -> None:
    """Write pairs of a group. Each row counts once: as paired, or by a reason."""
    rivals: defaultdict[tuple[Any, ...], list[tuple[int, DialogueSplit]]] = defaultdict(list)
    reasons: list[str] = []
    for at, row in enumerate(rows):
        answer = read_split(row["messages"])
        reasons.append(answer if isinstance(answer, str) else "no_pair")
        if not isinstance(answer, str):
            rivals[row["split"], row["tools"], repr(answer.prompt)].append((at, answer))
        if _write_preferences(row, output, number):
            reasons[at] = "paired"
    pairs = 0
    for answers in rivals.values():
        scored = [(rows[at]["reward"], at, answer) for at, answer in answers]
        scored = [each for each in scored if each[0] is not None]
        is_pair = False
        if scored:
            best, chosen_row, chosen = max(scored, key=itemgetter(0))
            worst, rejected_row, rejected = min(scored, key=itemgetter(0))
            is_pair = best != worst and chosen.completion != rejected.completion
        for at, _ in answers:
            is_scored = rows[at]["reward"] is not None
            if reasons[at] == "no_pair" and (is_pair if is_scored else len(answers) > 1):
                reasons[at] = "between" if is_scored else "no_reward"
        if is_pair:
            reasons[chosen_row] = reasons[rejected_row] = "paired"
            sides = chosen.prompt, chosen.completion, rejected.completion
            _write_pair(rows[chosen_row], sides, output, number)
            output.counted["pairs_group"] += 1
            pairs += 1
    counts = Counter(reasons)
    output.rows += counts.pop("paired", 0)
    for reason, count in counts.items():
        output.leave_out(reason, count)
    output.counted["pairs"] += pairs
    output.counted["groups_without_pair"] += not pairs


def _write_preferences(row: dict[str, Any], output: ExportOutput, number: int) -> int:
    """Write the pairs of a row. Returns their number."""
    pairs = read_pairs(row)
    for pair, before in pairs:
        _write_pair(row, (before, pair.chosen, pair.rejected), output, number)
        output.counted[f"pairs_{pair.kind}"] += 1
    output.counted["pairs"] += len(pairs)
    return len(pairs)


def _write_pair(
    row: dict[str, Any], sides: Iterable[Sequence[OpenAiMessage]], output: ExportOutput, number: int
) -> None:
    texts = dict(zip(("prompt", "chosen", "rejected"), map(plain, sides), strict=True))
    pair = pa.Table.from_pylist([texts | {"tools": row["tools"]}], _DPO_SCHEMA)
    output.table(f"{file_stem(row['split'], number)}.parquet", pair)


DPO = Exporter("trl-dpo", 2, "TRL 1.16", _write_dpo)


# trl-sdpo, trl-sdft


_HINTED_COLUMNS = ("split", "messages", "hint", *WEIGHING)
_HINTED_SCHEMA = pa.schema({"prompt": MESSAGES, "privileged_context": pa.large_string()})


def _write_hinted(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_HINTED_COLUMNS, output, "not_trained", "no_hint"):
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
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _HINTED_SCHEMA))
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
    _write_hinted,
    note=f"{_ANEW} Set include_environment_feedback=True, or hints are ignored. With one generation"
    " a prompt set use_successful_as_teacher=False too: nothing but the sample itself could be the"
    " demonstration. It needs reward_funcs.",
)
SDFT = Exporter(
    "trl-sdft",
    1,
    "TRL 1.16",
    _write_hinted,
    note=f"{_ANEW} The limit of prompts holds for the teacher's too, hint included.",
)
