"""A model as small as can be, and a shard of what it wrote. Heavy libraries are imported where they
are used: collecting these tests costs nothing."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.export_rows import Row, in_order, talked
from tests.support.tokenizer_files import tokenizer_json

#: As models have it that were made for training: what an assistant says is marked.
TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function.arguments }}{% endfor %}
{{- '<|im_end|>' }}
{%- endgeneration %}
{{- '\\n' }}
{%- else %}
{{- message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
TEMPERATURE = 1.0


def needs(*libraries: str) -> list[pytest.MarkDecorator]:
    """For `pytestmark`: skips without them, in CI too, since they take gigabytes. Warnings of
    theirs are no failures of ours."""
    missing = [one for one in libraries if find_spec(one) is None]
    why = f"{', '.join(missing)} not installed: see tests/study/trainers/requirements-*.txt"
    return [pytest.mark.skipif(bool(missing), reason=why), pytest.mark.filterwarnings("default")]


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    made = json.loads(tokenizer_json())
    plain = made | dict.fromkeys(("truncation", "padding", "post_processor"))
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(plain)),
        eos_token="<|im_end|>",
        pad_token="<|im_start|>",
        chat_template=TEMPLATE,
    )


def make_model(seed: int = 0) -> Any:
    """Random weights, the same for the same seed: 2 layers, 32 wide."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,  # so that some tokens are likelier than others
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def save_model(folder: Path, seed: int = 0) -> Path:
    """As a checkpoint lies in a folder: weights, configuration, tokenizer."""
    make_model(seed).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def logprobs_of(model: Any, ids: list[int]) -> list[float]:
    """How likely the model thinks each token is after those before it; 0 for the first."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1] / TEMPERATURE
    chosen = torch.tensor(ids[1:]).unsqueeze(1)
    found: list[float] = logits.log_softmax(-1).gather(1, chosen).squeeze(1).tolist()
    return [0.0, *found]


def sampled(model: Any, *, groups: int = 4, rollouts: int = 2, tokens: int = 36) -> list[Row]:
    """Rows of groups, with results of tools between answers. The answers were drawn from the model,
    with its log-probabilities; rewards and advantages differ within a group."""
    rng = np.random.default_rng(5)
    rows = []
    for group in range(groups):
        for rollout in range(rollouts):
            row = talked(
                f"g{group}", rollout, tokens=tokens + 3 * rollout, reward=2.0 * rollout - 1
            )
            row["n_branches"] = 1
            row["advantage"] = 0.5 + 0.25 * group if rollout else -0.75
            _draw(model, row, np.random.default_rng(group), rng)
            rows.append(row)
    return in_order(rows)


def _draw(model: Any, row: Row, of_group: np.random.Generator, rng: np.random.Generator) -> None:
    """The prompt is the group's; then by turns the model's own tokens and somebody else's."""
    import torch

    words = model.config.vocab_size - 2  # the two last ones are special
    ids: list[int] = of_group.integers(0, words, row["prompt_len"]).tolist()
    for own in row["loss_mask"][row["prompt_len"] :]:
        if not own:
            ids.append(int(rng.integers(0, words)))
            continue
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1] / TEMPERATURE
        chances = logits.double().softmax(-1).numpy()
        ids.append(int(rng.choice(len(chances), p=chances / chances.sum())))
    row["input_ids"] = np.array(ids, np.int32)
    found = np.array(logprobs_of(model, ids), np.float32)
    row["rollout_logprobs"] = np.where(row["loss_mask"], found, 0).astype(np.float32)
