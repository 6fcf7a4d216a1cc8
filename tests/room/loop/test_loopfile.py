"""Loop files that cannot be meant are refused by name, before anything is done."""

from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.loop.loop_file import (
    CanarySection,
    CycleStart,
    RetryPolicy,
    TrainerSection,
    WatchSection,
    load_loop,
)
from tests.support.loop_world import AGENT, LOOP, POLICY, QUERY, RECIPE
from tests.support.repository import ROOT
from tests.support.suite_factory import make_suite

SERVED = '[serving]\ncommand = "serve {port}"\n[[bench]]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path / "suite")
    for name, text in (
        ("recipe.toml", RECIPE), ("all.sql", QUERY), ("policy.toml", POLICY), ("loop.toml", LOOP),
        ("agent.sh", AGENT),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path


def changed(folder: Path, old: str, new: str, file: str = "loop.toml") -> Path:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    return folder / "loop.toml"


def test_what_it_says_and_what_it_leaves_out(folder: Path) -> None:
    loop = load_loop(folder / "loop.toml")
    assert (loop.name, loop.channel, loop.budget_s) == ("mini", "production", 5 * 3_600)
    assert loop.start == CycleStart(400, None)
    assert loop.retry == RetryPolicy(2, 0, 0)
    assert (loop.canary, loop.watch, loop.policy) == (None, None, POLICY)
    assert loop.here(loop.bench[0].agent) == f"sh {folder}/agent.sh"
    more = '[canary]\nshare = 0.1\nlimit = "2h"\n[watch]\nfor = "1h"\n[rewards]\n'
    assert (loop.over_budget, loop.trainer.keep_s) == ("show", None)
    kept = LOOP.replace("[trainer]", '[trainer]\nkeep = "3d"')
    budget = 'budget = "90m"\nover_budget = "end"\n'
    (folder / "loop.toml").write_text(budget + kept + more)
    loop = load_loop(folder / "loop.toml")
    assert (loop.canary, loop.budget_s) == (CanarySection(0.1, 7_200), 5_400)
    assert (loop.over_budget, loop.trainer.keep_s) == ("end", 3 * 86_400)
    assert loop.watch == WatchSection(3_600)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("[start]", "[strat]", "did you mean start?"),
        ("tokens = 400", "token = 400", "did you mean tokens?"),
        ("command =", "comand =", "did you mean command?"),
        ("isolation = false", "isolated = false", "did you mean isolation?"),
        ("tries = 2", "trys = 2", "did you mean tries?"),
        ("tokens = 400", "", "does not say when a cycle begins"),
        ("tokens = 400", "tokens = 0", "a whole number from 1 on"),
        ("tokens = 400", 'every = "often"', "a time such as"),
        ('command = "sh trainer.sh"', "", "either a command or a url"),
        ("[trainer]", '[trainer]\nurl = "http://gpu-1/"', "either a command or a url"),
        ("[trainer]", '[trainer]\ntoken_env = "T"', "token_env goes with a url"),
        ("command =", "ulr =", "did you mean url?"),
        ('command = "sh trainer.sh"', 'url = "ftp://gpu-1/"', "it is not http://HOST:PORT"),
        ('command = "sh trainer.sh"', 'url = "http:///train"', "it is not http://HOST:PORT"),
        ('command = "sh trainer.sh"', 'url = "http://gpu-1:x/"', "it is not http://HOST:PORT"),
        ('command = "sh trainer.sh"', 'url = "http://gpu 1/"', "none a blank"),
        ('command = "sh trainer.sh"', 'url = "http://gpu-1/"\noutput = "out"', "go with a command"),
        ('command = "sh trainer.sh"', 'url = "http://gpu-1/"\nkeep = "3d"', "go with a command"),
        ('limit = "60s"', 'keep = "soon"', "a time such as"),
        ('name = "mini"', 'name = "mini"\nover_budget = "stop"', "not show or end"),
        ('name = "mini"', 'name = "../mini"', "letters, digits"),
        ('channel = "production"', 'channel = "a/b"', "lead elsewhere"),
        ('suite = "suite"', 'suite = "sweet"', "no suite.toml"),
        ("[[bench]]", "[bench]", "written as"),
        ('"policy.toml"', '"recipe.toml"', "name"),
        ('"recipe.toml"', '"recipes.toml"', "recipes.toml"),
        ('pause = "0s"', 'pause = "5s"', "pause is longer than longest"),
        ("[retry]", "[canary]\nshare = 1\n[retry]", "share must lie between 0 and 1"),
        ("[retry]", "[watch]\n[retry]", "for has to be a text"),
        ("isolation = false", 'visible = ["/nowhere"]', "visible names /nowhere"),
        ("sh trainer.sh", "sh -e {here}/../t.sh x", "{here}/../t.sh in"),
        ("{here}/agent.sh", "{here}/agent.py", "{here}/agent.py in"),
        ("[retry]", '[serving]\ncommand = "{here}/e.py {port}"\n[retry]', "{here}/e.py in"),
        ("[retry]", "[serving]\n[retry]", "command has to be a text"),
        ("[retry]", '[serving]\ncommand = "serve"\n[retry]', "names no {port}"),
        ("[retry]", '[serving]\ncommand = "{port}"\nready = "up"\n[retry]', "such as /health"),
        ("[[bench]]", f'{SERVED}\nserving = "http://gpu-1/v1"', "remove serving in [[bench]]"),
        ("[retry]", '[rewards]\ndefinition = "comparing"\n[retry]', "the loop computes comparing"),
    ],
)
def test_a_bad_loop_file_is_refused_by_name(folder: Path, old: str, new: str, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_loop(changed(folder, old, new))
    assert why in str(refused.value)


@pytest.mark.parametrize("url", ["http://ann:hush@g/", "http://hush@g/", "http://g/?api_key=hush"])
def test_an_address_with_a_key_is_refused_and_not_shown(folder: Path, url: str) -> None:
    with pytest.raises(InvalidInput, match="name the variable") as refused:
        load_loop(changed(folder, 'command = "sh trainer.sh"', f'url = "{url}"'))
    assert "hush" not in str(refused.value)


def test_a_trainer_that_is_asked_by_http(folder: Path) -> None:
    told = 'url = "https://gpu-1/train?queue=2"\ntoken_env = "TOKEN"'
    trainer = load_loop(changed(folder, 'command = "sh trainer.sh"', told)).trainer
    assert trainer == TrainerSection(None, "https://gpu-1/train?queue=2", "TOKEN", limit_s=60)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('channel = "production"', 'channel = "other"', "names 'other'"),
        ('channel = "production"\nmax_versions = 0', "", "names none"),
        ('pending = "drop"', 'pending = "wait"', "new sessions never end"),
        ("seed = 3", 'seed = 3\nas_of = "then"', "train on the same sessions"),
    ],
)
def test_a_recipe_that_does_not_fit_the_loop_is_refused(
    folder: Path, old: str, new: str, why: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_loop(changed(folder, old, new, "recipe.toml"))
    assert why in str(refused.value)


def test_a_definition_is_checked_even_if_the_recipe_has_no_rewards(folder: Path) -> None:
    changed(folder, '[reward]\npending = "drop"', "", "recipe.toml")
    path = changed(folder, "[retry]", '[rewards]\ndefinition = "mine.toml"\n[retry]')
    with pytest.raises(InvalidInput, match=r"mine\.toml"):
        load_loop(path)


def test_a_recipe_may_say_otherwise_where_the_loop_file_says_so(folder: Path) -> None:
    changed(folder, 'channel = "production"\nmax_versions = 0', "", "recipe.toml")
    path = changed(folder, "[shard]", '[shard]\nstaleness = "recipe"')
    assert load_loop(path).shard.staleness == "recipe"


def test_the_examples_can_be_read() -> None:
    loops = ROOT / "examples" / "loops"
    assert load_loop(loops / "core.toml").serving is None
    serving = load_loop(loops / "vllm.toml").serving
    assert serving is not None
    assert (serving.ready, serving.limit_s) == ("/health", 900)


def test_facts_of_a_command_are_quoted_and_each_is_put_in_once(folder: Path) -> None:
    loop = load_loop(folder / "loop.toml")
    facts = {"checkpoint": "a b", "uri": "/models/{port}", "port": "8"}
    command = loop.here("serve {uri} {checkpoint} {port} ${HOME} {here}", **facts)
    assert command == f"serve '/models/{{port}}' 'a b' 8 ${{HOME}} {folder}"
