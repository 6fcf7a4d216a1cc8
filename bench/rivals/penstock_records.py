"""Penstock builds a shard, in process."""

from pathlib import Path
from typing import Any

from bench.rivals.spending import answer_questions
from bench.shard_build import build
from tests.support.lakes import hand_lake


def _build(question: dict[str, Any]) -> int:
    """Of another seed each round: the same shard would be there already."""
    with hand_lake(Path(question["lake"])) as lake:
        manifest = build(lake, Path(question["folder"]), question["round"]).manifest
    assert manifest.counts.tokens == question["tokens"]
    return manifest.counts.sessions


if __name__ == "__main__":
    answer_questions(_build)
