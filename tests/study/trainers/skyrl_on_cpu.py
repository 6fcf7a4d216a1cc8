"""SkyRL's supervised trainer with its own options, loop, data, collator, loss and checkpoints. This
stands in for its workers alone, which hold the model on GPUs."""

import importlib.machinery
import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

#: A file that gets a line of JSON for each step; and the step in which the process is killed.
LOG, DIES = "SKYRL_LOG", "SKYRL_DIES"


def without_flash_attention() -> Any:
    """SkyRL's wrapper of models asks for flash-attn when it is imported, and not on this path."""
    names = ("flash_attn", "flash_attn.bert_padding")
    for name in names:
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.pad_input = module.unpad_input = None  # type: ignore[attr-defined]
        sys.modules[name] = module
    from skyrl.backends.skyrl_train.workers import model_wrapper

    for name in names:
        del sys.modules[name]
    return model_wrapper.HFModelWrapper


class Worker:
    """What SkyRL's trainer calls of its dispatch, with one model on this machine."""

    def __init__(self, folder: str) -> None:
        import torch

        self._model = without_flash_attention()(folder, bf16=False)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=0.05)
        self._steps = 0

    def forward_backward(self, _model: str, batch: Any, **_: Any) -> Any:
        loss = self._loss(batch)
        loss.backward()
        return SimpleNamespace(metrics={"loss": loss.item()})

    def forward(self, _model: str, batch: Any, **_: Any) -> Any:
        return SimpleNamespace(metrics={"loss": self._loss(batch).item()})

    def _loss(self, batch: Any) -> Any:
        from skyrl.backends.skyrl_train.utils.ppo_utils import cross_entropy_loss

        logprobs = self._model(
            batch["sequences"],
            batch.metadata["response_length"],
            attention_mask=batch["attention_mask"],
        )
        loss, _ = cross_entropy_loss(logprobs, None, None, None, loss_mask=batch["loss_mask"])
        return loss

    def optim_step(self, _model: str) -> float:
        self._steps += 1
        if self._steps == int(os.environ.get(DIES, "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return 0.0

    def save_checkpoint(self, _model: str, folder: str, _tokenizer: Any) -> None:
        import torch

        Path(folder).mkdir(parents=True, exist_ok=True)
        torch.save((self._model.state_dict(), self._optimizer.state_dict()), f"{folder}/all.pt")

    def load_checkpoint(self, _model: str, folder: str, **_: Any) -> None:
        import torch

        model, optimizer = torch.load(f"{folder}/all.pt")
        self._model.load_state_dict(model)
        self._optimizer.load_state_dict(optimizer)

    def save_hf_model(self, _model: str, folder: str, tokenizer: Any) -> None:
        self._model.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    def dp_size(self, _model: str) -> int:
        return 1

    def finalize_pending_saves(self, _model: str) -> None:
        pass


def main(arguments: list[str]) -> None:
    from skyrl.train.config.sft_config import SFTConfig
    from skyrl.train.sft_trainer import SFTTrainer
    from skyrl.train.utils.callbacks import TrainingCallback

    class Logs(TrainingCallback):  # type: ignore[misc]
        def on_step_end(self, trainer: Any, told: Any, control: Any) -> None:
            batch = told.batch
            line = {
                "step": told.global_step,
                "ids": batch["sequences"].tolist(),
                "attention": batch["attention_mask"].tolist(),
                "mask": (batch["loss_mask"] > 0).tolist(),
                "loss": told.metrics["loss"],
            }
            with Path(os.environ[LOG]).open("a") as log:
                log.write(json.dumps(line) + "\n")

    class Trainer(SFTTrainer):  # type: ignore[misc]
        def _init_workers(self) -> None:
            self.dispatch = Worker(self.sft_cfg.model.path)

    trainer = Trainer(SFTConfig.from_cli_overrides(arguments), callbacks=[Logs()])
    trainer.setup()
    trainer.train()
    trainer.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
