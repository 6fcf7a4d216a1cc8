"""Bits per byte of a checkpoint on the held-out files of a text shard, as an engine tells it."""

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock.registry.channels.promotion import judge
from penstock.shards.registered_shards import find_shard
from penstock_jobs.benchmarks.held_out_text import measure_checkpoint
from penstock_jobs.shards.recipe import load_recipe
from tests.support.checkpoint_factory import TENANT, add, promote, set_policy
from tests.support.commands import penstock
from tests.support.engine_lake import built
from tests.support.lakes import HandLake, hand_lake
from tests.support.repository import ROOT
from tests.support.servers.scripted_server import Answer, Asked, Server, answering

RECIPE = """
name = "text"
[tokens]
tokenizer = "tokenizer.json"
max_length = 50
[text]
separator = "<|endoftext|>"
[[text.repositories]]
path = "."
repo = "shop/web"
license = "MIT"
[split]
eval = {share}
"""
SEPARATOR, FILES = 256, 30


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two checkpoints, and a shard of bytes that holds out most files."""
    folder = tmp_path_factory.mktemp("recipes")
    for number in range(FILES):
        (folder / f"{number}.py").write_text(f"value_{number} = '{'é' * number}'\n")
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*named, "commit", "-qm", "all")):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    shutil.copy(ROOT / "examples" / "recipes" / "tokenizer.json", folder)
    with hand_lake(folder / "data") as lake:
        add(lake.lake.database, "one", "two")
        for name, share in (("text", 0.8), ("none", 0.0)):
            (folder / f"{name}.toml").write_text(
                RECIPE.format(share=share).replace('"text"', f'"{name}"')
            )
            built(lake, load_recipe(folder / f"{name}.toml"))
    return folder / "data"


@pytest.fixture
def lake(tmp_path: Path, data: Path) -> Iterator[HandLake]:
    shutil.copytree(data, tmp_path / "data")
    with hand_lake(tmp_path / "data") as lake:
        yield lake


def vllm(bits: Callable[[int], float], asked: Asked) -> Answer:
    """As vLLM tells it: nothing about the first token."""
    ids = asked.document["prompt"]
    assert asked.document["max_tokens"] == 1
    assert asked.document["prompt_logprobs"] == 0
    assert ids[0] == SEPARATOR
    told = [{str(token): {"logprob": -bits(token) * math.log(2), "rank": 1}} for token in ids[1:]]
    return Answer(body=json.dumps({"choices": [{"text": "x", "prompt_logprobs": [None, *told]}]}))


def measured(lake: HandLake, name: str, bits: Callable[[int], float]) -> Server:
    server = Server(script=lambda asked: vllm(bits, asked))
    with answering(server, "/v1"):
        shard = find_shard(lake.lake.database, TENANT, "text")
        measure_checkpoint(lake.lake, shard, name, server.url)
    return server


def test_each_held_out_file_is_a_task(lake: HandLake) -> None:
    server = measured(lake, "one", lambda _token: 4.0)
    assert {asked.path for asked in server.asked} == {"/v1/completions"}
    rows = lake.rows("select * from benchmark_scores order by task")
    files = lake.rows(
        """select distinct file.path as path, file.bytes as bytes
        from samples, unnest(documents) as of(file) where split = 'eval'"""
    )
    assert 15 < len(files) < FILES
    assert {row["task"].split()[0]: row["prompt_tokens"] for row in rows} == {
        file["path"]: file["bytes"] for file in files
    }
    for row in rows:  # a token is a byte here
        assert row["bits_per_byte"] == pytest.approx(4.0)
        assert row["score"] == pytest.approx(1 / 16)
        assert (row["suite"], row["suite_version"][:7], row["error"]) == ("text", "sha256:", None)
    # Files over several rows are asked for in parts.
    assert len(server.asked) > len(files)
    assert measured(lake, "one", lambda _token: 5.0).asked == []


def test_the_gate_takes_it_like_any_other_metric(lake: HandLake) -> None:
    database = lake.lake.database
    measured(lake, "one", lambda token: 4.0 + token % 3)
    measured(lake, "two", lambda token: 3.0 + token % 3)
    for maximum, outcome in ((3.5, "FAIL"), (9.0, "PASS")):
        rule = f'[[require]]\nsuite = "text"\nmetric = "bits_per_byte"\nmaximum = {maximum}'
        set_policy(database, f'{rule}\ndirection = "min"\nmargin = 0.1\nmin_tasks = 10\n')
        assert judge(database, TENANT, "production", "one").outcome == outcome
    promote(database, "one", lambda channel, name: judge(database, TENANT, channel, name))
    verdict = judge(database, TENANT, "production", "two")
    assert verdict.outcome == "PASS"
    difference = verdict.document["requirements"][0]["difference"]
    assert difference == pytest.approx(1.0)  # less is better


def test_what_the_engine_does_not_tell_is_an_error_until_it_does(lake: HandLake) -> None:
    add(lake.lake.database, "three")
    server = Server(script=lambda _asked: Answer(404, '{"error": "no such model"}'))
    with answering(server, "/v1"):
        where = ("--serving", server.url, "--data", str(lake.lake.settings.data))
        done = penstock("bench", "measure", "text", "--checkpoint", "three", *where)
    assert (done.returncode, done.stderr.count("status 404")) == (0, 0)
    assert "the engine" in done.stdout
    rows = lake.rows("select distinct status, error from benchmark_scores")
    assert rows == [
        {"status": "error", "error": "the engine: no prompt_logprobs in its answer of status 404"}
    ]
    measured(lake, "three", lambda _token: 4.0)
    assert lake.rows("select distinct status from benchmark_scores") == [{"status": "scored"}]


def test_a_shard_without_held_out_files_measures_nothing(lake: HandLake) -> None:
    shard = find_shard(lake.lake.database, TENANT, "none")
    with pytest.raises(InvalidInput, match="no held-out files"):
        measure_checkpoint(lake.lake, shard, "one", "http://127.0.0.1:1/v1")
