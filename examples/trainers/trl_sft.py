"""Supervised fine-tuning with TRL, on what engines read and wrote. The model's own tokens count. It
may be killed at any moment, and makes the checkpoint that it would have made.

    [trainer]
    command = "python3 {here}/../trainers/trl_sft.py"
"""

from hugging_face import SETTINGS, exported, parent, train
from trl import SFTConfig, SFTTrainer

train(
    SFTTrainer(
        model=parent(),
        train_dataset=exported("trl-sft", "tokens"),
        args=SFTConfig(
            **SETTINGS,
            max_length=None,  # TRL's own cuts what is longer than 1,024 tokens
            learning_rate=1e-5,
            num_train_epochs=1,
        ),
    )
)
