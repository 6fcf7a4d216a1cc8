"""Tiny models with weights that say different things, adapters for them, and what each answers by
transformers. Run by itself, in the environment of an engine:

    python tiny_models.py FOLDER: makes the folders of the models there, and answers.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

TOKENS = 12
#: The second is longer than the blocks of prefix caches.
PROMPTS = [[(7 * at + 3) % 500 + 1 for at in range(length)] for length in (20, 300)]
_RANK, _ALPHA = 4, 8
_ADAPTED = ("q_proj", "o_proj", "down_proj")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for seed, name in enumerate(("base", "one", "two")):
        _make_model(folder / name, seed)
    _make_adapter(folder, "first", "one", seed=11)
    _make_adapter(folder, "second", "two", seed=12)
    known = {one: _answers(folder / one) for one in ("base", "one", "two", "first", "second")}
    (folder / "answers.json").write_text(json.dumps({"prompts": PROMPTS, "models": known}))


def _make_model(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1024,
        tie_word_embeddings=False, initializer_range=0.6, bos_token_id=None, eos_token_id=511,
    )  # fmt: skip
    Qwen2ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"t{one}": one for one in range(512)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t511").save_pretrained(folder)


def _make_adapter(folder: Path, name: str, base: str, seed: int) -> None:
    """With a model that has it merged in, in `name`/merged."""
    dice = torch.Generator().manual_seed(seed)
    weights = load_file(folder / base / "model.safetensors")
    merged, adapter = dict(weights), {}
    for key, weight in weights.items():
        layer = key.removesuffix(".weight")
        if layer.rpartition(".")[2] in _ADAPTED:
            down = torch.randn(_RANK, weight.shape[1], generator=dice) * 0.3
            up = torch.randn(weight.shape[0], _RANK, generator=dice) * 0.3
            adapter[f"base_model.model.{layer}.lora_A.weight"] = down
            adapter[f"base_model.model.{layer}.lora_B.weight"] = up
            merged[key] = weight + _ALPHA / _RANK * (up @ down)
    (folder / name).mkdir()
    save_file(adapter, folder / name / "adapter_model.safetensors")
    facts = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": _RANK, "lora_alpha": _ALPHA,
        "lora_dropout": 0.0, "bias": "none", "target_modules": list(_ADAPTED),
        "base_model_name_or_path": base,
    }  # fmt: skip
    (folder / name / "adapter_config.json").write_text(json.dumps(facts))
    (folder / f"{name}-merged").mkdir()
    (folder / f"{name}-merged" / "config.json").write_bytes(
        (folder / base / "config.json").read_bytes()
    )
    save_file(merged, folder / f"{name}-merged" / "model.safetensors", {"format": "pt"})


def _answers(folder: Path) -> list[dict[str, Any]]:
    """The tokens that are likeliest, one after the other, and their log-probabilities."""
    merged = folder.with_name(f"{folder.name}-merged")
    path = merged if merged.exists() else folder
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    found = []
    for prompt in PROMPTS:
        tokens, scores = list(prompt), []
        for _ in range(TOKENS):
            with torch.no_grad():
                last = model(torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
            tokens.append(int(last.argmax()))
            scores.append(float(last.max()))
        found.append({"tokens": tokens[len(prompt) :], "logprobs": scores})
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
