"""examples/recipes over the sample sessions: each query runs, and what it chooses is known."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.shards.recipe import Recipe, load_recipe
from penstock_jobs.shards.selection.selection import KnownSessions, Selection, read_answer, select
from tests.support.lakes import HandLake, hand_lake
from tests.support.repository import ROOT
from tests.support.reward_runs import run_at, store_samples

RECIPES = ROOT / "examples" / "recipes"
ALL = sorted(RECIPES.glob("*.toml"))
OF_SESSIONS = [path for path in ALL if not path.stem.startswith("text-")]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandLake]:
    """The sample sessions of the day before START_US, and their rewards a day later."""
    with hand_lake(tmp_path_factory.mktemp("lake")) as lake:
        store_samples(lake)
        run_at(lake, 0, find_definition())
        yield lake


def chosen_by(lake: HandLake, recipe: Recipe) -> Selection:
    answer = lake.lake.query(recipe.query).arrow()
    asked = read_answer(answer, recipe.advantage.kind)
    chains = "select session_id, chain from outcomes where superseded_at is null order by all"
    known = KnownSessions(
        lake.lake.query(chains).arrow(),
        lake.lake.query("select * from outcomes where superseded_at is null").arrow(),
        lake.lake.query(
            "select * from rewards where superseded_at is null and target_kind = 'session'"
        ).arrow(),
    )
    return select(asked, known, recipe.target)


#: How many of the eighteen are chosen, and why the others of the query are not.
EXPECTED = {
    "held-out-eval": (14, {"censored": 3, "excluded": 1}),
    "hints": (6, {}),
    "long-context-256k": (1, {}),
    "long-context-32k": (17, {}),
    "preference-pairs": (1, {}),
    "realtime-rl": (14, {"censored": 3, "excluded": 1}),
    "sft-persistent": (4, {"censored": 1, "excluded": 1}),
}


@pytest.mark.parametrize("path", OF_SESSIONS, ids=lambda path: path.stem)
def test_what_each_chooses_of_the_samples(lake: HandLake, path: Path) -> None:
    recipe = load_recipe(path)
    selection = chosen_by(lake, recipe)
    assert recipe.name == path.stem
    reasons = Counter(selection.left_out["reason"].to_pylist())
    assert (selection.chosen.num_rows, reasons) == EXPECTED[path.stem]


def test_files_that_survived_in_the_samples(lake: HandLake) -> None:
    rows = lake.lake.query(load_recipe(RECIPES / "text-32k.toml").query).arrow().to_pylist()
    files = {(row["session_id"], row["path"]) for row in rows}
    assert len(rows) == len(files) == 8
    assert ("sample-no-train", "Depot/Shelf.cs") in files  # consent comes after the query


def test_the_readme_names_each() -> None:
    text = (RECIPES / "README.md").read_text(encoding="utf-8")
    for path in [*RECIPES.glob("*.toml"), *RECIPES.glob("*.sql"), *RECIPES.glob("*.json")]:
        assert f"]({path.name})" in text
    used = {load_recipe(path).query_file for path in ALL}
    assert used == {path.name for path in RECIPES.glob("*.sql")}
