"""A lake of short sessions with tokens of an engine, and a recipe for them."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.backends.execution.calls import InlineExecutor
from penstock.backends.execution.executor import Executor
from penstock.shards.manifest import read_rows
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.build import ShardBuild, build_shard
from penstock_jobs.shards.recipe import Recipe, load_recipe
from tests.support.lakes import START_US, Event, HandLake
from tests.support.reward_events import answered, said
from tests.support.reward_runs import thumbs

DAY_US = 86_400_000_000
SESSIONS = 12
RECIPE = """
name = "engine"
query = "all.sql"
seed = 3
[tokens]
source = "engine"
[reward]
definition = "default"
pending = "drop"
[advantage]
kind = "stratum"
[exclude]
consent = "not_denied"
"""
NO_ORDER = "select session_id, project as stratum from sessions"
QUERY = f"{NO_ORDER} order by session_id"


def engine_recipe(folder: Path, *replaced: tuple[str, str], query: str = QUERY) -> Recipe:
    """Written into a folder, with something put in the place of something else."""
    text = RECIPE
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    folder.mkdir(exist_ok=True)
    (folder / "all.sql").write_text(query)
    (folder / "engine.toml").write_text(text)
    return load_recipe(folder / "engine.toml")


def talk(session: str, number: int, checkpoint: str = "ckpt-1", **usage: int) -> list[Event]:
    """Two turns, the second of which goes on from the tokens of the first; the user is content
    with every other session."""
    first: dict[str, Any] = {
        "prompt_ids": [1, 2, number],
        "completion_ids": [7, 8],
        "logprobs": [-0.5, -0.25],
    }
    prompt = [*first["prompt_ids"], *first["completion_ids"], 3, 4]
    second = {"prompt_ids": prompt, "completion_ids": [9], "logprobs": [-0.125]}
    facts = {"project": f"p{number % 2}", "checkpoint": checkpoint, "user": f"u{number}"}
    used = {"usage": usage} if usage else {}
    events = [
        said(1, "do it", session),
        answered(2, session, call_id="a", text="Done.", tokens=tokens(first), **used),
        said(3, "go on", session),
        answered(4, session, call_id="b", text="Done too.", tokens=tokens(second), **used),
        thumbs(session, 5, "up" if number % 2 else "down"),
    ]
    return [one | facts for one in events]


def tokens(ids: dict[str, Any]) -> dict[str, Any]:
    return ids | {"tokenizer": "t" * 64, "policy_version_runs": [[0, 4]]}


def otherwise(session: str, number: int, checkpoint: str = "ckpt-1", **usage: int) -> list[Event]:
    """A talk that begins with other words, so that it repeats none."""
    begun, *rest = talk(session, number, checkpoint, **usage)
    return [begun | {"payload": {"text": f"do {session}"}}, *rest]


def fill(lake: HandLake) -> None:
    for number in range(SESSIONS):
        lake.send(talk(f"s{number:02d}", number))
    lake.writer().drain()
    work = RunRequest(find_definition())
    run(lake.lake, InlineExecutor(), work, now_us=START_US + DAY_US)


def built(lake: HandLake, recipe: Any, executor: Executor | None = None) -> ShardBuild:
    return build_shard(lake.lake, executor or InlineExecutor(), recipe, tenant="default")


def rows_of(lake: HandLake, shard: ShardBuild) -> list[dict[str, Any]]:
    parts = read_rows(shard.stored)
    rows: list[dict[str, Any]] = pa.concat_tables(parts).to_pylist()
    return rows


def files_of(lake: HandLake) -> set[str]:
    return {one.name for one in lake.lake.store.list("shards")}
