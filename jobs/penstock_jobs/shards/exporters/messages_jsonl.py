"""messages-jsonl: conversations in OpenAI's form, one JSON object a line.

Files: `train-00000.jsonl`, `eval-00000.jsonl`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `messages` | `messages`, the same text |
| `tools` | `tools`, the same text; no such key where there are none |

Alignment: none, there are no tokens. An assistant's message with `weight` 0 is read and not
trained; OpenAI's fine-tuning leaves it out of the loss, other trainers do not know the key.

Lost: tokens, masks, log-probabilities, policy versions, rewards, advantages, loss weights, lineage.

Left out: `not_trained`, `no_messages`, `unknown_message_form`.

Written for OpenAI's chat form of 2026-10: `reasoning_content` is what inference servers add to it.
"""

import msgspec

from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource
from penstock_jobs.shards.exporters.dialogue import read_dialogues

_COLUMNS = ("split", "messages", "tools", *WEIGHING)


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_COLUMNS, output, "not_trained"):
        for row, _ in read_dialogues(rows, output):
            texts = {name: _one_line(row[name]) for name in ("messages", "tools") if row[name]}
            output.line(f"{file}.jsonl", msgspec.json.encode(texts))
            output.rows += 1


def _one_line(text: str) -> msgspec.Raw:
    """The text itself, unless it has line breaks; those inside strings are always escaped."""
    content = text.encode()
    return msgspec.Raw(msgspec.json.format(content, indent=-1) if b"\n" in content else content)


EXPORTER = Exporter("messages-jsonl", 1, "OpenAI chat messages, 2026-10", write)
