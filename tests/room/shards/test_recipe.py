"""Recipes: what they say, and what is refused."""

from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.shards.recipe import Advantage, Recipe, load_recipe

TEXT = """
name = "fresh"
query = "fresh.sql"
as_of = "latest"
seed = 7

[tokens]
source = "prefer-engine"
tokenizer = "models/tokenizer.json"
template = "chat.jinja"
max_length = 4096
pack = true

[reward]
definition = "default"
horizon_s = 600
pending = "wait"

[advantage]
kind = "stratum"
spread = true
per = "turn"

[staleness]
channel = "production"
max_versions = 1
max_age = "6h"

[exclude]
suites = ["extra", "core", "core"]
consent = "train"
overlap_words = 8
overlap_min = 0.5
near_duplicates = true
similarity_min = 0.9
max_per_user = 200
max_per_repo = 300

[split]
eval = 0.05
by = "repo"
keep = "train"

[output]
max_sessions = 1000
file_bytes = 1000000
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "fresh.sql").write_text("select session_id from sessions", encoding="utf-8")
    return tmp_path


def load(directory: Path, text: str = TEXT) -> Recipe:
    path = directory / "fresh.toml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path)


def test_it_says_all_of_it(directory: Path) -> None:
    recipe = load(directory)
    assert (recipe.name, recipe.as_of, recipe.seed) == ("fresh", "latest", 7)
    assert recipe.query == "select session_id from sessions"
    assert (recipe.tokens.source, recipe.tokens.max_length, recipe.tokens.pack) == (
        "prefer-engine", 4096, True,
    )  # fmt: skip
    assert recipe.directory == directory
    assert recipe.reward is not None
    assert (recipe.reward.definition, recipe.reward.horizon_s) == ("default", 600)
    assert recipe.reward.pending == "wait"
    assert recipe.advantage == Advantage("stratum", spread=True, per="turn")
    assert (recipe.staleness.channel, recipe.staleness.max_versions) == ("production", 1)
    assert recipe.staleness.max_age_s == 6 * 3600
    assert recipe.exclude.suites == ("core", "extra")
    assert (recipe.exclude.overlap_words, recipe.exclude.overlap_min) == (8, 0.5)
    assert (recipe.exclude.near_duplicates, recipe.exclude.similarity_min) == (True, 0.9)
    assert (recipe.exclude.max_per_user, recipe.exclude.max_per_repo) == (200, 300)
    assert (recipe.split.eval, recipe.split.by, recipe.split.keep) == (0.05, "repo", "train")
    assert (recipe.output.max_sessions, recipe.output.file_bytes) == (1000, 1_000_000)


def test_what_it_leaves_out_has_a_default(directory: Path) -> None:
    recipe = load(directory, 'name = "a"\nquery = "fresh.sql"\ntokens.source = "engine"')
    assert recipe.reward is None
    assert recipe.advantage == Advantage("none", spread=False, per="session")
    assert recipe.exclude.consent == "train"
    assert recipe.staleness.max_versions is None
    assert recipe.tokens.pack is False
    assert recipe.split.eval == 0


def test_its_canonical_text_is_what_it_says(directory: Path) -> None:
    recipe = load(directory)
    parts = TEXT.split("\n\n")
    assert load(directory, "# a comment\n" + TEXT).canonical == recipe.canonical
    reordered = "\n\n".join([parts[0], *reversed(parts[1:])])
    assert load(directory, reordered).canonical == recipe.canonical
    assert load(directory, TEXT.replace('"6h"', '"360m"')).canonical == recipe.canonical
    assert load(directory, TEXT.replace("seed = 7", "seed = 8")).canonical != recipe.canonical
    # Neither where it lies nor what the query says: the manifest has the query beside it.
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "fresh.sql").write_text("select 1")
    assert load(elsewhere).canonical == recipe.canonical
    assert str(directory) not in recipe.canonical
    assert load(elsewhere) != recipe


def test_a_time_may_be_written_as_toml_has_it(directory: Path) -> None:
    text = TEXT.replace('"latest"', "2026-11-20T10:00:00Z")
    assert load(directory, text).as_of == "2026-11-20T10:00:00+00:00"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("seed = 7", "sede = 7", "'sede' in .*fresh.toml.*did you mean seed"),
        ("[exclude]", "[exclud]", "'exclud' .*did you mean exclude"),
        ("kind", "kinds", r"\[advantage\].*did you mean kind"),
        ("max_age", "age_max", r"\[staleness\]"),
        ("eval = 0.05", "evaluation = 0.05", r"\[split\]"),
        ('name = "fresh"', 'name = "fresh', "at line 2"),
        ('query = "fresh.sql"', "", "query has to be a text"),
        ('query = "fresh.sql"', 'query = "none.sql"', "none.sql.*No such file"),
        ("as_of = \"latest\"", "as_of = 3", "as_of has to be a text"),
        ("as_of = \"latest\"", "as_of = 2026-11-20T10:00:00", "no time zone"),
        ('"prefer-engine"', '"engines"', "source is 'engines', not engine or render or"),
        ('tokenizer = "models/tokenizer.json"', "", "needs a tokenizer"),
        ('pending = "wait"', "", 'pending = "wait" or "drop"'),
        ('pending = "wait"', 'pending = "zero"', "pending is 'zero', not wait or drop"),
        ('kind = "stratum"', 'kind = "gae"', "kind is 'gae', not group or stratum or none"),
        ('per = "turn"', 'per = "word"', "per is 'word', not session or turn or token"),
        ("spread = true", "spread = 1", "spread has to be true or false"),
        ('kind = "stratum"', "", "spread and per need a kind, group or stratum"),
        ("max_versions = 1", "", "it needs max_versions, the most versions behind production"),
        ('channel = "production"', "", "needs a channel or a checkpoint"),
        ('channel = "production"', 'channel = "p"\ncheckpoint = "c"', "keep one"),
        ('"6h"', '"6 hours"', "max_age has to be a time such as"),
        ('["extra", "core", "core"]', '"core"', "suites has to be a list"),
        ('consent = "train"', 'consent = "any"', "consent is 'any', not train or not_denied"),
        ("overlap_min = 0.5", "overlap_min = 0", "would exclude everything"),
        ("similarity_min = 0.9", "similarity_min = 1.1", "has to lie between 0 and 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_the_reason(
    directory: Path, old: str, new: str, why: str
) -> None:
    assert old in TEXT
    with pytest.raises(InvalidInput, match=why):
        load(directory, TEXT.replace(old, new, 1))


def test_an_advantage_needs_a_reward(directory: Path) -> None:
    start, end = TEXT.index("[reward]"), TEXT.index("[advantage]")
    with pytest.raises(InvalidInput, match=r"needs a \[reward\]"):
        load(directory, TEXT[:start] + TEXT[end:])
