"""examples/trainers/hints.py: what has a gradient, in which direction, and what has none."""

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from penstock.shards.manifest import StoredShard
from tests.study.trainers.making import needs
from tests.support.export_rows import Row, hinted
from tests.support.repository import ROOT

pytestmark = needs("torch", "trl")
PROGRAM = ROOT / "examples" / "trainers" / "hints.py"
#: No limit is reached.
FAR = ("--advantage", "1e9", "--clip", "1e9", "--teacher-rate", "0")


@pytest.fixture(scope="module")
def hints() -> Any:
    spec = spec_from_file_location("hints", PROGRAM)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batch_of(rows: list[Row]) -> dict[str, Any]:
    """As the loader gives them."""
    import torch

    batch: dict[str, Any] = {}
    for name in ("input_ids", "loss_mask", "rollout_logprobs", "hint_ids"):
        lists = [torch.as_tensor(row.get(name, [])) for row in rows]
        batch[name] = torch.cat(lists)
        ends = torch.tensor([len(each) for each in lists]).cumsum(0)
        batch[f"{name}.offsets"] = torch.cat([torch.zeros(1, dtype=torch.long), ends])
    for name in ("hint_position", "hint_start", "hint_end"):
        batch[name] = torch.tensor([row.get(name, -1) for row in rows])
    batch["temperature"] = torch.tensor([1.0 for _ in rows])
    return batch


def both(hints: Any, model: Any, row: Any) -> tuple[Any, Any]:
    """What the model foretells without the hint, and with it."""
    later = row.places + len(row.told) - len(row.ids)
    return (
        hints.foretold(model, row.ids, row.places, row.temperature),
        hints.foretold(model, row.told, later, row.temperature).detach(),
    )


def kl(student: Any, teacher: Any) -> Any:
    return (student.exp() * (student - teacher)).sum()


def test_only_trained_tokens_that_the_hint_is_about_have_a_gradient(
    hints: Any, rows: list[Row], tiny_model: Any
) -> None:
    row = hinted(rows[0])
    inside = row["hint_start"] + 2, row["hint_end"] + 3  # into what a tool said
    assert not row["loss_mask"][row["hint_end"]]
    [read] = hints.hinted(batch_of([row | {"hint_start": inside[0], "hint_end": inside[1]}]), "cpu")
    made: list[Any] = []

    def keep(_: Any, __: Any, output: Any) -> None:
        output.logits.retain_grad()
        made.append(output.logits)

    tiny_model.register_forward_hook(keep)
    student = hints.foretold(tiny_model, read.ids, read.places, 1.0)
    teacher = student.detach().roll(1, -1)
    loss, *_ = hints.divergence(student, teacher, read, hints.Progress(), hints.options(*FAR))
    loss.backward()
    moved = made[0].grad[0].abs().sum(-1).nonzero()[:, 0] + 1
    assert moved.tolist() == list(range(inside[0], row["hint_end"]))


def test_the_teacher_reads_the_same_completion_behind_the_hint(hints: Any, rows: list[Row]) -> None:
    row = hinted(rows[0])
    [read] = hints.hinted(batch_of([rows[1], row]), "cpu")
    place = row["hint_position"]
    assert read.told[place : place + 3].tolist() == row["hint_ids"]
    assert read.told[place + 3 :].tolist() == row["input_ids"][place:].tolist()
    assert read.ids.tolist() == row["input_ids"].tolist()
    assert read.places.tolist() == list(range(row["hint_start"], row["hint_end"]))


@pytest.mark.parametrize("top", ["5", "100000"])
def test_where_limits_are_far_the_gradient_is_the_divergences(hints: Any, top: str) -> None:
    import torch

    generator = torch.Generator().manual_seed(3)
    logits, others = (torch.randn(4, 50, generator=generator) for _ in range(2))
    ids = torch.tensor([0, 3, 1, 4, 1])
    teacher, places = others.log_softmax(-1), torch.arange(1, 5)
    kept = logits.topk(min(int(top), 50)).indices

    def gradient(loss_of: Any) -> Any:
        leaf = logits.clone().requires_grad_()
        loss_of(leaf.log_softmax(-1)).backward()
        return leaf.grad

    def loss(student: Any) -> Any:
        sampled = student.detach().gather(-1, ids[1:, None])[:, 0]  # so that each ratio is 1
        row = hints.Row(ids, ids, places, sampled, 1.0)
        asked = hints.options(*FAR, "--top", top)
        return hints.divergence(student, teacher, row, hints.Progress(), asked)[0]

    def by_hand(student: Any) -> Any:
        """The others' mass is one more token."""
        sides = []
        for side in (student, teacher):
            best = side.gather(-1, kept).exp()
            rest = (1 - best.sum(-1, keepdim=True)).clamp(min=1e-6)
            sides.append(torch.cat([best, rest], -1).log())
        return kl(*sides)

    torch.testing.assert_close(gradient(loss), gradient(by_hand), atol=1e-4, rtol=1e-3)


def test_the_model_moves_towards_its_teacher(hints: Any, rows: list[Row], tiny_model: Any) -> None:
    import copy

    import torch

    teacher = copy.deepcopy(tiny_model)
    asked, progress = hints.options(*FAR), hints.Progress()
    read = list(hints.hinted(batch_of([hinted(row) for row in rows]), "cpu"))
    optimizer = torch.optim.AdamW(tiny_model.parameters(), lr=1e-3)

    def apart() -> tuple[float, float]:
        found = []
        for row in read:
            [student, _], [_, taught] = both(hints, tiny_model, row), both(hints, teacher, row)
            found.append(kl(student, taught).item())
        return sum(found), max(found)

    before = apart()
    for _ in range(10):
        hints.learn((tiny_model, teacher), optimizer, read, progress, asked)
    after = apart()
    assert after[0] < 0.7 * before[0]
    assert progress.learned == 10 * len(rows)


def test_advantages_and_ratios_have_limits(hints: Any) -> None:
    """One token that the teacher finds impossible, and one that its sampler found so."""
    import torch

    student = torch.full((2, 4), 0.25).log().requires_grad_()
    teacher = student.detach().clone()
    teacher[0, 2] = -60.0
    ids, places = torch.tensor([0, 1, 1]), torch.arange(1, 3)
    row = hints.Row(ids, ids, places, torch.tensor([-1.3863, -50.0]), 1.0)
    progress = hints.Progress(mean=0.5)
    loss, gap, ratio = hints.divergence(
        student, teacher, row, progress, hints.options("--top", "4", "--advantage", "3")
    )
    assert ratio.tolist() == pytest.approx([1, torch.tensor(48.6137).exp().item()], rel=1e-3)
    assert gap.tolist() == [0, 0]
    limit = 3 * progress.mean
    assert progress.mean < 1
    # One bucket of the first place, where the ratio is 1. The second's is 2 and its worth is 0.
    assert loss.item() == pytest.approx(0.25 * limit, rel=0.01)


def test_the_teacher_follows_slowly(hints: Any, tiny_model: Any) -> None:
    import torch

    from tests.study.trainers.making import make_model

    teacher, other = make_model(1), make_model(1)
    hints.follow(teacher, tiny_model, 0.05)
    for kept, old, new in zip(
        teacher.parameters(), other.parameters(), tiny_model.parameters(), strict=True
    ):
        torch.testing.assert_close(kept, 0.95 * old + 0.05 * new)


def test_rows_without_a_hint_give_no_gradient(hints: Any, rows: list[Row]) -> None:
    beside = hinted(rows[0])
    of_a_tool = beside | {"hint_start": beside["hint_end"], "hint_end": beside["hint_end"] + 1}
    rendered = beside | {"rollout_logprobs": []}
    assert list(hints.hinted(batch_of([*rows, of_a_tool, rendered]), "cpu")) == []


def test_it_learns_from_what_was_said_in_sessions(
    hint_shard: tuple[Path, StoredShard], model_folder: Path, tmp_path: Path
) -> None:
    data, shard = hint_shard
    told = {"PENSTOCK_DATA": data, "PENSTOCK_WORK": tmp_path, "PENSTOCK_OUTPUT": tmp_path / "made"}
    told["PENSTOCK_ANSWER"] = tmp_path / "answer.json"
    named = {"PENSTOCK_SHARD": shard.id, "PENSTOCK_PARENT_URI": model_folder.as_uri()}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--rate", "1e-3", "--epochs", "3"],
        env=os.environ | {name: str(path) for name, path in told.items()} | named,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "48 rows, and 0 without" in done.stdout
    assert json.loads((tmp_path / "answer.json").read_text())["digest"]
