"""`penstock shards`, as a person types it, on the sessions that come with the project."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.commands import penstock
from tests.support.repository import ROOT

RECIPES = ROOT / "examples" / "recipes"


def run(data: Path, *arguments: str) -> CompletedProcess[str]:
    return penstock(*arguments, "--data", str(data))


def shards(data: Path, *arguments: str) -> Any:
    done = run(data, "shards", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("samples")
    assert run(data, "import", str(ROOT / "examples" / "sessions")).returncode == 0
    assert run(data, "rewards", "run").returncode == 0
    for name in ("sft-persistent", "long-context-32k"):
        built = run(data, "shards", "build", str(RECIPES / f"{name}.toml"))
        assert built.returncode == 0, built.stderr
    return data


def test_build_says_what_became_of_each_session(data: Path) -> None:
    again = run(data, "shards", "build", str(RECIPES / "sft-persistent.toml"))
    assert "The same shard already exists." in again.stderr
    lines = [" ".join(line.split()) for line in again.stdout.splitlines()]
    assert lines[0].startswith("sha256:")
    assert {"sessions asked for 6", "sessions in it 4"} <= set(lines)
    [out] = [line for line in lines if line.startswith("left out: excluded 1 sample-")]
    assert "no_train" in out
    rows = data.parent / "left-out.jsonl"
    recipe = str(RECIPES / "sft-persistent.toml")
    run(data, "shards", "build", recipe, "--left-out", str(rows))
    [_, row] = map(json.loads, rows.read_text().splitlines())
    assert row["reason"] == "excluded"
    assert f"{row['session_id']}: {row['detail']}" in out


def test_list_show_verify_diff(data: Path) -> None:
    listed = {one["name"]: one for one in shards(data, "list")}
    assert set(listed) == {"sft-persistent", "long-context-32k"}
    shown = shards(data, "show", "sft-persistent")
    assert shown["shard"] == listed["sft-persistent"]["id"]
    assert shown["manifest"]["counts"]["samples"] == 4
    assert shown["marks"] == []
    person = run(data, "shards", "show", listed["sft-persistent"]["id"][:20])
    assert "part-00000.parquet" in person.stdout
    proof = run(data, "shards", "verify", "sft-persistent")
    assert (proof.returncode, "0 problems" in proof.stderr) == (0, True)
    found = shards(data, "diff", "sft-persistent", "long-context-32k")
    assert {"name", "rewards", "recipe.tokens.source"} <= {one["what"] for one in found["changes"]}
    assert found["samples"]["only_after"] == 13
    assert any(line.startswith("-with kept as") for line in found["query"])


def test_export_writes_what_another_stack_reads(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "sft"
    done = run(
        data, "shards", "export", "sft-persistent", "--to", "messages-jsonl", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    [name] = [one for one in done.stdout.split() if one.endswith(".jsonl")]
    lines = Path(name).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    assert {"role", "content"} <= json.loads(lines[0])["messages"][0].keys()


def test_what_is_wrong_is_said(data: Path) -> None:
    for arguments, why in (
        (["show", "nothing"], "was not found: it does not exist"),
        (["build", str(RECIPES / "realtime-rl.toml")], "no_engine_tokens 14"),
        (["export", "sft-persistent", "--to", "trl-sfd", "--out", "x"], "did you mean trl-sft"),
    ):
        done = run(data, "shards", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr


def test_an_export_of_nothing_is_refused_with_the_reason(data: Path, tmp_path: Path) -> None:
    """The samples have no tokens of an engine, and no rivals."""
    out = tmp_path / "out"
    for target, reason in (("prime-rl", "no_logprobs 4"), ("trl-dpo", "no_pair 3, no_prompt 1")):
        done = run(data, "shards", "export", "sft-persistent", "--to", target, "--out", str(out))
        assert (done.returncode, done.stdout) == (1, "")
        assert f"all of its rows are left out ({reason})" in done.stderr
        assert not out.exists()
