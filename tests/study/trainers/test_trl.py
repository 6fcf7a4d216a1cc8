"""TRL's trainers, run on what is exported for them: what counts in their losses is what the shard
says, and nothing else."""

import math
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.shards.manifest import StoredShard
from penstock_jobs.shards.export import export_shard
from tests.study.trainers.making import logprobs_of, needs
from tests.support.export_rows import Row

pytestmark = [
    *needs("torch", "trl"),
    pytest.mark.filterwarnings("ignore"),  # of what its own libraries will drop some day
]


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "trained"),
        "bf16": False,
        "disable_tqdm": True,
        "max_steps": 1,
        "per_device_train_batch_size": 8,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        **more,
    }


def read(folder: Path, below: str = "") -> Any:
    """The split `train`, as the documentation reads it."""
    import datasets

    return datasets.load_dataset(
        "parquet", data_dir=str(folder / below), split="train", cache_dir=str(folder.parent / "hf")
    )


def trained(trainer: Any) -> float:
    """Of its one step. The weights are others after it."""
    before = {name: one.clone() for name, one in trainer.model.named_parameters()}
    loss = trainer.train().training_loss
    assert any((one != before[name]).any() for name, one in trainer.model.named_parameters())
    return float(loss)


def mean_loss(model: Any, rows: list[Row]) -> float:
    """By hand: over the tokens of all rows that the mask has, and no others."""
    found = [np.array(logprobs_of(model, row["input_ids"].tolist())) for row in rows]
    counted = [-one[row["loss_mask"] == 1] for one, row in zip(found, rows, strict=True)]
    return float(np.concatenate(counted).mean())


@pytest.mark.parametrize("length", [{"max_length": None}, {"max_length": 80, "packing": True}])
def test_sft_counts_the_tokens_of_the_mask(
    rows: list[Row], exported: Any, model_folder: Path, tmp_path: Path, length: dict[str, Any]
) -> None:
    import trl

    trainer = trl.SFTTrainer(
        model=str(model_folder),
        train_dataset=read(exported(rows, "trl-sft"), "tokens"),
        args=trl.SFTConfig(**settings(tmp_path, **length)),
    )
    counted = [
        ids[labels != -100].tolist()
        for batch in trainer.get_train_dataloader()
        for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True)
    ]
    in_mask = [row["input_ids"][row["loss_mask"] == 1].tolist() for row in rows]
    assert sorted(chain(*counted)) == sorted(chain(*in_mask))
    wanted = mean_loss(trainer.model, rows)
    # Packed rows see those before them, unless attention keeps them apart: not on this machine.
    assert trained(trainer) == pytest.approx(wanted, rel=0.2 if "packing" in length else 1e-4)


def rendered(rows: list[Row]) -> list[Row]:
    """As the same sessions are where no engine gave tokens."""
    nothing = dict.fromkeys(
        ("rollout_logprobs", "policy_version_runs", "min_policy_version", "max_policy_version",
         "temperature")
    )  # fmt: skip
    return [
        row | nothing | {"token_source": "renderer", "template_sha256": "7e" * 32} for row in rows
    ]


def test_sft_of_messages_counts_what_assistants_said(
    rows: list[Row], exported: Any, model_folder: Path, tokenizer: Any, tmp_path: Path
) -> None:
    import trl

    trainer = trl.SFTTrainer(
        model=str(model_folder),
        train_dataset=read(exported(rendered(rows), "trl-sft"), "messages"),
        args=trl.SFTConfig(**settings(tmp_path, assistant_only_loss=True, max_length=None)),
    )
    one = trainer.train_dataset[0]
    said = tokenizer.decode([label for label in one["labels"] if label != -100])
    assert "I look" in said
    assert said.count("<|im_end|>") == 2
    assert said.endswith("done<|im_end|>")
    assert "def f(): ..." in tokenizer.decode(one["input_ids"])
    assert "def f(): ..." not in said
    trained(trainer)


def test_kto_learns_from_labels_and_over_whole_completions(
    rows: list[Row], exported: Any, model_folder: Path, tokenizer: Any, tmp_path: Path
) -> None:
    import trl

    data = read(exported(rows, "trl-kto"))
    assert data["label"] == [row["reward"] > 0 for row in rows]
    trainer = trl.KTOTrainer(
        model=str(model_folder),
        train_dataset=data,
        args=trl.KTOConfig(**settings(tmp_path, max_length=None)),
    )
    one = trainer.train_dataset[0]
    assert tokenizer.decode(one["prompt_ids"]).endswith("<|im_start|>assistant\n")
    completion = tokenizer.decode(one["completion_ids"])
    assert "I look" in completion
    assert "def f(): ..." in completion  # a tool said it: KTO has no mask
    # The model is its own reference before the first step, so that nothing is preferred yet.
    assert trained(trainer) == pytest.approx(0.5, abs=1e-3)


def test_dpo_learns_from_pairs(
    rows: list[Row], exported: Any, model_folder: Path, tokenizer: Any, tmp_path: Path
) -> None:
    import trl

    data = read(exported(rows, "trl-dpo"))
    assert len(data) == len({row["group_id"] for row in rows})
    trainer = trl.DPOTrainer(
        model=str(model_folder),
        train_dataset=data,
        args=trl.DPOConfig(**settings(tmp_path, max_length=None)),
    )
    one = trainer.train_dataset[0]
    chosen, rejected = (tokenizer.decode(one[name]) for name in ("chosen_ids", "rejected_ids"))
    assert "I look, g0-r1" in chosen
    assert "I look, g0-r0" in rejected
    assert "def f(): ..." in chosen
    assert trained(trainer) == pytest.approx(math.log(2), abs=1e-3)


def of_hints(shard: tuple[Path, StoredShard], target: str, folder: Path) -> Any:
    told = export_shard(shard[1], target, folder / target)
    assert (told.rows, told.left_out) == (8, {"no_user_last": 8})
    return read(folder / target)


def test_sdpo_learns_from_hints_only_where_it_is_told_to(
    hint_shard: tuple[Path, StoredShard], model_folder: Path, tmp_path: Path
) -> None:
    """A hint changes what the teacher reads, and without it no sample has a loss."""
    from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

    data = of_hints(hint_shard, "trl-sdpo", tmp_path)

    def step(**more: Any) -> Any:
        generation = {"num_generations": 1, "max_completion_length": 8, "generation_batch_size": 8}
        args = SDPOConfig(
            **settings(tmp_path, use_successful_as_teacher=False, **generation, **more)
        )
        return SDPOTrainer(
            model=str(model_folder),
            reward_funcs=lambda completions, **_: [0.0 for _ in completions],
            train_dataset=data,
            args=args,
        )

    told = step(include_environment_feedback=True)
    assert trained(told) != 0
    assert step().train().training_loss == 0


def test_sdft_learns_from_hints(
    hint_shard: tuple[Path, StoredShard], model_folder: Path, tmp_path: Path
) -> None:
    from trl.experimental.sdft import SDFTConfig, SDFTTrainer

    trainer = SDFTTrainer(
        model=str(model_folder),
        train_dataset=of_hints(hint_shard, "trl-sdft", tmp_path),
        args=SDFTConfig(
            **settings(
                tmp_path, num_generations=1, max_completion_length=8, generation_batch_size=8
            )
        ),
    )
    assert trained(trainer) != 0


ROLLOUT = ("prompt_ids", "completion_ids", "logprobs", "env_mask")


def grpo(data: Any, model: Path, folder: Path, **more: Any) -> Any:
    """A trainer whose rollouts are rows of the file; a prompt is the number of one."""
    import trl

    data = data.add_column("prompt", [str(number) for number in range(len(data))])
    made = trl.GRPOTrainer(
        model=str(model),
        reward_funcs=lambda advantage, **_: advantage,
        rollout_func=lambda prompts, _: {
            name: data[[int(one) for one in prompts]][name] for name in ROLLOUT
        },
        train_dataset=data,
        args=trl.GRPOConfig(**settings(folder, num_generations=2, scale_rewards="none", **more)),
    )
    made.num_generations = 1
    return made


def test_grpo_takes_rollouts_as_they_are(
    rows: list[Row], exported: Any, model_folder: Path, tmp_path: Path
) -> None:
    """Its ratio by the sampler's log-probabilities is 1 for the model that wrote them, and only the
    model's own tokens have a part in the gradient."""
    trainer = grpo(read(exported(rows, "trl-grpo")), model_folder, tmp_path)
    [inputs] = trainer.get_train_dataloader()
    made = trainer._generate_and_score_completions(inputs)
    own = (made["completion_mask"] * made["tool_mask"]).bool()
    assert int(own.sum()) == sum(row["n_trainable"] for row in rows)

    kept: list[Any] = []
    ask = trainer._get_per_token_logps_and_entropies

    def watched(*args: Any, **facts: Any) -> Any:
        found = ask(*args, **facts)
        found[0].retain_grad()
        kept.append(found[0])
        return found

    trainer._get_per_token_logps_and_entropies = watched
    made["advantages"].fill_(1)  # so that each row has one
    made["old_per_token_logps"] = made["sampling_per_token_logps"]
    trainer.current_gradient_accumulation_steps = 1
    trainer._compute_loss(trainer.model, made).backward()
    [logprobs] = kept
    ratio = (logprobs - made["sampling_per_token_logps"]).exp()[own]
    assert ratio.min() > 0.999
    assert ratio.max() < 1.001
    assert ((logprobs.grad != 0) == own).all()
