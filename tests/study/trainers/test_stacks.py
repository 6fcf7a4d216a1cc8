"""Exports that the readers of their targets take: PyTorch for slime, Tinker's own package."""

import json

import numpy as np

from tests.support.export_rows import exported, library, talked


def test_pytorch_reads_the_samples_of_slime() -> None:
    torch = library("torch")
    rows = [talked("g", routed_rows=13), talked("h", routed_rows=14)]
    with exported(rows, "slime", routed=True) as (out, _):
        # slime says weights_only=False; plain values need no such trust.
        content = torch.load(out / "rollouts" / "0.pt", weights_only=True)
        assert content["rollout_id"] == 0
        assert [sample["tokens"] for sample in content["samples"]] == [
            row["input_ids"].tolist() for row in rows
        ]
        routes = torch.as_tensor(content["samples"][1]["rollout_routed_experts"])
        assert tuple(routes.shape) == (13, 2, 2)


def test_tinker_takes_each_line() -> None:
    tinker = library("tinker")
    rows = [talked("g"), talked("h", rendered=True)]
    with exported(rows, "tinker") as (out, _):
        files = sorted(out.glob("train-*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert len(lines) == len(rows)
        for line, row in zip(lines, rows, strict=True):
            inputs = line["loss_fn_inputs"]
            datum = tinker.Datum(
                model_input=tinker.ModelInput(**line["model_input"]),
                loss_fn_inputs={
                    name: tinker.TensorData(**values) for name, values in inputs.items()
                },
            )
            assert datum.model_input.to_ints() == row["input_ids"][:-1].tolist()
            found = {name: values.to_numpy() for name, values in datum.loss_fn_inputs.items()}
            assert (found["target_tokens"] == row["input_ids"][1:]).all()
            assert found["target_tokens"].dtype == np.int64
            trained = found["mask"] if "mask" in found else found["weights"]
            assert (trained == row["loss_mask"][1:]).all()
