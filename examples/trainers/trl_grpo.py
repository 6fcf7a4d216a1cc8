"""Reinforcement learning with TRL, on answers that production has: nothing is generated here.
It may be killed at any moment, and makes the checkpoint that it would have made.

    [trainer]
    command = "python3 {here}/../trainers/trl_grpo.py"

TRL does two things with its own rollouts that are wrong with these, and `Given` takes them back. It
makes advantages from rewards within groups of one size: here they are the recipe's. And without
vLLM it takes the log-probabilities of its own weights for those of whoever sampled.
"""

import torch
from hugging_face import SETTINGS, exported, parent, train
from trl import GRPOConfig, GRPOTrainer

#: A prompt is the number of its row.
data = exported("trl-grpo")
data = data.add_column("prompt", [str(number) for number in range(len(data))])


def rollout(prompts, _trainer):
    rows = data[[int(number) for number in prompts]]
    return {name: rows[name] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}


def advantage(advantage, **_):
    return advantage


class Given(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        made = super()._generate_and_score_completions(inputs)
        advantages = [one["advantage"] for one in inputs]
        made["advantages"] = torch.tensor(advantages, device=made["advantages"].device)
        made["old_per_token_logps"] = made["sampling_per_token_logps"]
        return made


trainer = Given(
    model=parent(),
    reward_funcs=advantage,
    rollout_func=rollout,
    train_dataset=data,
    args=GRPOConfig(
        **SETTINGS,
        temperature=1.0,  # that of the sampling: log-probabilities are compared at it
        learning_rate=1e-6,
        num_train_epochs=1,
        num_generations=2,  # the least that TRL takes
    ),
)
trainer.num_generations = 1  # each row once
train(trainer)
