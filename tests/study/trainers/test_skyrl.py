"""What SkyRL makes of an export: its own loader, collator, model and trainer, on this machine. Its
workers want GPUs; `skyrl_on_cpu` stands in for those alone. The backend of its server for Tinker's
API runs as it is, by JAX.

requirements-skyrl.txt says how to make the environment that this needs.
"""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.study.trainers.making import logprobs_of, make_model, needs, save_model
from tests.study.trainers.shell_examples import Example
from tests.study.trainers.skyrl_on_cpu import DIES, LOG
from tests.support.export_rows import Row

pytestmark = needs("ray", "skyrl", "torch")
OPTIONS = (
    "strategy=fsdp", "placement.num_gpus_per_node=1", "remove_microbatch_padding=false",
    "enable_ray_gpu_monitor=false", "batch_size=2", "micro_train_batch_size_per_gpu=2",
    "ckpt_interval=2",
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # numbers are added in one order


def apart(rows: list[Row]) -> list[Row]:
    """The last group is for evaluation."""
    last = rows[-1]["group_id"]
    return [row | {"split": "eval" if row["group_id"] == last else "train"} for row in rows]


def loaded(folder: Path) -> list[dict[str, Any]]:
    from skyrl.train.dataset.pretokenized import load_from_pretokenized

    return list(load_from_pretokenized(str(folder)))


def aligned(values: Any, width: int) -> list[Any]:
    return [0] * (width - len(values)) + list(values)


def test_exactly_the_tokens_of_the_mask_count(
    rows: list[Row], exported: Callable[[list[Row], str], Path], tokenizer: Any
) -> None:
    from skyrl.train.dataset.collators import DefaultCollator

    folder = exported(apart(rows), "skyrl")
    for split, kept in (("train", rows[:-2]), ("eval", rows[-2:])):
        examples = loaded(folder / split)
        batch = DefaultCollator(tokenizer, 1)(examples, batch_size=len(kept))
        width = batch["sequences"].shape[1]
        ids = batch["sequences"] * batch["attention_mask"]
        assert ids.tolist() == [aligned(row["input_ids"], width) for row in kept]
        masks = np.array([aligned(row["loss_mask"], width) for row in kept])
        window = batch["loss_mask"].numpy()
        assert not masks[:, : width - window.shape[1]].any()
        wanted = masks[:, width - window.shape[1] :] / masks.sum()
        np.testing.assert_allclose(window, wanted, rtol=1e-6)


def test_its_trainer_learns_the_mask_and_goes_on_after_a_kill(
    tmp_path: Path, rows: list[Row], exported: Callable[[list[Row], str], Path]
) -> None:
    folder = exported(apart(rows), "skyrl")
    example = Example(
        "skyrl.sh",
        tmp_path,
        [sys.executable, str(Path(__file__).with_name("skyrl_on_cpu.py"))],
        (*OPTIONS, f"eval_pretokenized_dataset_paths=['{folder / 'eval'}']"),
    )
    save_model(tmp_path / "parent")
    logs = {}
    for where, dies in (("once", []), ("killed", ["3"])):
        (tmp_path / where).mkdir()
        (tmp_path / where / "data").symlink_to(folder)
        log = tmp_path / where / "log"
        for step in dies:
            assert example.run(where, **{LOG: str(log), DIES: step}) == 128 + signal.SIGKILL
        assert example.run(where, **{LOG: str(log)}) == 0
        logs[where] = [json.loads(line) for line in log.read_text().splitlines()]
    assert example.digest("once") == example.digest("killed")
    assert logs["killed"] == logs["once"]
    assert [one["step"] for one in logs["once"]] == [1, 2, 3]
    seen = [ids for one in logs["once"] for ids in real(one)]
    assert sorted(seen) == sorted(row["input_ids"].tolist() for row in rows[:-2])
    assert logs["once"][0]["loss"] == pytest.approx(expected(logs["once"][0], rows), rel=1e-4)
    made = tmp_path / "once" / "output"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in made.iterdir()
    }


def real(step: dict[str, Any]) -> list[list[int]]:
    """Its sequences, without what fills them up."""
    return [
        [one for one, there in zip(ids, attention, strict=True) if there]
        for ids, attention in zip(step["ids"], step["attention"], strict=True)
    ]


def expected(step: dict[str, Any], rows: list[Row]) -> float:
    """What the parent thinks of the tokens of the mask, on average."""
    model, masks = make_model(), {tuple(row["input_ids"]): row["loss_mask"] for row in rows}
    found = [
        -logprob
        for ids in real(step)
        for logprob, trained in zip(logprobs_of(model, ids), masks[tuple(ids)], strict=True)
        if trained
    ]
    return sum(found) / len(found)
