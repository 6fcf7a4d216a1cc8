"""Cycles of the demonstration, played in a folder of a test."""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.lake.lake import open_existing
from penstock_jobs.simulator.demo.engines import Engines
from penstock_jobs.simulator.demo.folders import DemoFolders, make_folders
from penstock_jobs.simulator.demo.player import Player
from penstock_jobs.simulator.demo.server import running_server
from penstock_jobs.simulator.demo.story import Act, Chapter, StoryEnding


@dataclass
class PlayedStory:
    folders: DemoFolders
    chapters: list[Chapter]
    ending: StoryEnding
    told: list[str]


def play_story(
    where: Path,
    acts: Sequence[Act],
    monkeypatch: pytest.MonkeyPatch,
    *,
    seed: int = 11,
    prepare: Callable[[DemoFolders], None] = lambda _folders: None,
) -> PlayedStory:
    """Play acts, in folders that `prepare` may have changed."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folders = make_folders(where)
    prepare(folders)
    told: list[str] = []
    with (
        folders.log.open("wb") as log,
        running_server(folders.data, log=log) as server,
        open_existing(folders.data) as lake,
        closing(Engines(server, folders.loops, folders.engines, log)) as engines,
    ):
        player = Player(
            lake=lake, server=server, folders=folders, seed=seed, sessions=180, engines=engines,
            tell=told.append,
        )  # fmt: skip
        player.begin()
        chapters = list(player.play(acts, go_on=lambda: True))
        return PlayedStory(folders, chapters, player.end(), told)


Sampled = list[tuple[list[int], list[float]]]


def sampled_by_engines(folders: DemoFolders) -> dict[tuple[int, ...], Sampled]:
    """What the engines of production wrote down of their samples, by prompt."""
    found: dict[tuple[int, ...], Sampled] = defaultdict(list)
    for path in folders.engines.glob("*.calls.jsonl"):
        for line in path.read_text().splitlines():
            call = json.loads(line)
            logprobs = np.array(call["logprobs"], np.float32).tolist()
            found[tuple(call["prompt"])].append((call["tokens"], logprobs))
    return found


def trained_calls(data: Path, shard: str) -> list[tuple[tuple[int, ...], list[int], list[float]]]:
    """Each stretch of tokens that a shard trains on: its prompt, ids and log-probabilities."""
    found = []
    for batch in penstock.read_shard(str(data), shard, seed=1):
        columns = (batch[name] for name in ("input_ids", "loss_mask", "rollout_logprobs"))
        for ids, mask, logprobs in zip(*columns, strict=True):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], mask > 0, [0]]).astype(int)))
            for start, end in zip(edges[::2], edges[1::2], strict=True):
                sampled = ids[start:end].tolist(), logprobs[start:end].tolist()
                found.append((tuple(ids[:start].tolist()), *sampled))
    return found
