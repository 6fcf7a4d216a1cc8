"""Exclusions by texts: contamination, and near-duplicates with their measured rates."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.registry.checkpoints.suites import SuiteContent, SuiteTask, SuiteVersion
from penstock_jobs.rewards.history.session_commits import plain_repo
from penstock_jobs.shards.exclusion.texts import (
    WORDS,
    Contamination,
    Signature,
    near_duplicates,
    shingles,
    signature,
    word_hashes,
)
from penstock_jobs.shards.recipe import Exclude
from penstock_jobs.shards.selection.session_facts import SessionProfile

#: The same on every machine.
GOLDEN = [10760762337991515389, 11960917346445342580, 17069721209552277102, 16027911106723540831]
VOCABULARY = [f"word{place}" for place in range(3_000)]


def words_of(rng: np.random.Generator, count: int) -> list[str]:
    return [VOCABULARY[place] for place in rng.integers(0, len(VOCABULARY), count)]


# Shingles


def test_words_of_any_script() -> None:
    assert word_hashes("hello wörld 世界").tolist() == GOLDEN
    assert len(word_hashes("修复解析器")) == 5
    assert len(word_hashes("fix 修复 it")) == 4
    assert len(word_hashes("résumé naïve")) == 2
    assert word_hashes("ﬁx").tolist() == word_hashes("fix").tolist()
    assert len(word_hashes("a “quoted” word—here")) == 4
    assert len(word_hashes("broken \ud800 text")) == 2


@settings(max_examples=40)
@given(st.text(alphabet="ab _.", max_size=60))
def test_words_are_those_of_a_plain_reading(text: str) -> None:
    words = re.findall(r"\w+", text)
    hashes = word_hashes(text).tolist()
    assert len(hashes) == len(words)
    assert len(set(hashes)) == len(set(words))
    runs = {tuple(words[at : at + 3]) for at in range(len(words) - 2)}
    assert len(shingles(text, 3)) == len(runs)


# Contamination


def suite(
    name: str = "core", tasks: Sequence[str] = (), **content: Sequence[str] | Sequence[Any]
) -> SuiteVersion:
    marks = {key: tuple(values) for key, values in content.items()}
    named = tuple(SuiteTask(task) for task in tasks)
    return SuiteVersion(name, "1", named, SuiteContent(**marks))


TASK = """The importer drops the last row of a file without a newline at its end. Make it keep
that row, also where the file has one column alone, and add a test for both of them."""
PROFILE = SessionProfile("s")
COMMIT = "4f2a91c07be3d58a6c11d9e0f3b27a4455aa6677"


@pytest.fixture(scope="module")
def contamination() -> Contamination:
    return Contamination(
        [
            suite(
                tasks=["t-1"],
                sessions=["s-mined"],
                repos=["https://github.com/Acme/Tool.git"],
                commits=[COMMIT],
                texts=[("t-1", TASK), ("t-2", "fix the failing test")],
            ),
            suite("extra", texts=[("t-9", " ".join(VOCABULARY[:50]))]),
        ]
    )


@pytest.mark.parametrize(
    ("profile", "texts", "reason", "detail"),
    [
        (SessionProfile("s-mined"), [], "contaminated_task", "a task of core was made from it"),
        (SessionProfile("s", task_id="t-1"), [], "contaminated_task", "t-1 of core"),
        (
            SessionProfile("s", repo="git@github.com:acme/tool.git"),
            [],
            "contaminated_repo",
            "acme/tool.git",
        ),
        (SessionProfile("s", commit=COMMIT[:8].upper()), [], "contaminated_commit", "of core"),
        (SessionProfile("s", commit=COMMIT + "0" * 8), [], "contaminated_commit", "of core"),
        (PROFILE, ["hello", f"> {TASK.upper()}"], "contaminated_text", "100% of its runs"),
        (PROFILE, [" ".join(VOCABULARY[20:40])], "contaminated_text", "t-9 of extra: 21%"),
    ],
)
def test_a_task_is_known_by_any_of_its_marks(
    contamination: Contamination,
    profile: SessionProfile,
    texts: list[str],
    reason: str,
    detail: str,
) -> None:
    why = contamination.of(profile, texts)
    assert why is not None
    assert why.reason == reason
    assert detail in (why.detail or "")


@pytest.mark.parametrize(
    ("profile", "texts"),
    [
        (SessionProfile("s"), []),
        (SessionProfile("s", task_id="t-3", repo="acme/tools", commit="4f2a91d" + "0" * 33), []),
        (SessionProfile("s", commit=COMMIT[:6]), []),
        (PROFILE, ["fix the failing test", "", "The importer drops the last row"]),
        # Twelve words of it, and a run has thirteen.
        (PROFILE, [" ".join(TASK.split()[:12])]),
        # Of 38 runs of the other 3: 8 %.
        (PROFILE, [" ".join(VOCABULARY[:15])]),
    ],
)
def test_what_only_looks_like_it_stays(
    contamination: Contamination, profile: SessionProfile, texts: list[str]
) -> None:
    assert contamination.of(profile, texts) is None


def test_the_bound_is_the_recipe_s() -> None:
    suites = [suite(texts=[("t", " ".join(VOCABULARY[:50]))])]
    texts = [" ".join(VOCABULARY[:15])]
    assert Contamination(suites, Exclude(overlap_min=3 / 38)).of(PROFILE, texts) is not None
    assert Contamination(suites, Exclude(overlap_min=0.08)).of(PROFILE, texts) is None
    assert (
        Contamination(suites, Exclude(overlap_words=8, overlap_min=0.18)).of(PROFILE, texts)
        is not None
    )  # 8 of 43
    assert Contamination([]).of(PROFILE, texts) is None


@pytest.mark.parametrize(
    "repo",
    [
        "acme/tool", "Acme/Tool", "https://github.com/acme/tool", "https://u:p@host/acme/tool.git/",
        "git@github.com:acme/tool.git", "ssh://git@host:22/acme/tool.git", "/srv/git/acme/tool.git",
        "C:\\work\\acme\\tool",
    ],
)  # fmt: skip
def test_ways_to_write_a_repository(repo: str) -> None:
    assert plain_repo(repo) == "acme/tool"


# Near-duplicates

SEED = 7


def signed(texts: Mapping[str, str], seed: int = SEED) -> dict[str, Signature | None]:
    return {name: signature([text], seed) for name, text in texts.items()}


def clusters(found: Mapping[str, Signature | None], similarity: float = 0.8) -> dict[str, str]:
    ids = list(found)
    out = near_duplicates(ids, list(found.values()), ids, similarity)
    assert all(why.reason == "near_duplicate" for why in out.values())
    return {name: (why.detail or "").removeprefix("of ") for name, why in out.items()}


def changed(rng: np.random.Generator, words: list[str], share: float) -> str:
    """With this share of words replaced."""
    count = round(share * len(words))
    words = list(words)
    for place in rng.choice(len(words), count, replace=False):
        words[place] = f"other{rng.integers(10**9)}"
    return " ".join(words)


def jaccard(one: str, other: str) -> float:
    a, b = set(shingles(one, WORDS).tolist()), set(shingles(other, WORDS).tolist())
    return len(a & b) / len(a | b)


def test_the_least_id_of_a_cluster_stays() -> None:
    rng = np.random.default_rng(1)
    words = words_of(rng, 300)
    texts = {name: " ".join(words) for name in "cab"}
    texts["d"] = " ".join(words_of(rng, 300))
    assert clusters(signed(texts)) == {"b": "a", "c": "a"}


def test_attempts_of_one_group_are_alike_on_purpose() -> None:
    rng = np.random.default_rng(2)
    same = signature([" ".join(words_of(rng, 300))], SEED)
    found = near_duplicates(["a", "b", "c"], [same] * 3, ["g", "g", "h"], 0.8)
    assert found.keys() == {"c"}


def test_little_text_is_nobody_s_duplicate() -> None:
    assert signature(["Done, all tests pass."], SEED) is None
    assert near_duplicates(["a", "b"], [None, None], ["a", "b"], 0.8) == {}
    # Runs do not go from one text to the next.
    assert signature(["one two three"] * 100, SEED) is None


def test_what_is_near_to_something_near_is_in_the_cluster() -> None:
    """A drift: each is near to the next, and the last is far from the first."""
    rng = np.random.default_rng(3)
    words = words_of(rng, 400)
    texts = {}
    for step in range(12):
        texts[f"s{step:02}"] = " ".join(words)
        for place in range(step * 8, step * 8 + 8):  # eight in a row: a few runs are lost
            words[place] = f"new{step}-{place}"
    assert jaccard(texts["s00"], texts["s11"]) < 0.7
    assert clusters(signed(texts)) == {f"s{step:02}": "s00" for step in range(1, 12)}


def test_recall_and_precision_are_as_they_are_written_down() -> None:
    """1,200 texts, of 200 of which there is a changed copy; a share of p words replaced leaves
    about (1 − p)⁵ of the runs of each, so a similarity of about that over two minus that."""
    rng = np.random.default_rng(6)
    texts = {f"a{place:04}": words_of(rng, 250) for place in range(1_000)}
    plain = {name: " ".join(words) for name, words in texts.items()}
    similar: dict[str, float] = {}
    for place in range(200):
        origin = f"a{place:04}"
        copy = changed(rng, texts[origin], 0.06 * place / 200)
        plain[f"z{place:04}"] = copy
        similar[f"z{place:04}"] = jaccard(plain[origin], copy)
    found = clusters(signed(plain))
    assert all(name.startswith("z") and origin[1:] == name[1:] for name, origin in found.items())
    clear = {name for name, share in similar.items() if share >= 0.87}
    far = {name for name, share in similar.items() if share <= 0.7}
    assert len(clear) > 30
    assert len(far) > 30
    assert len(clear & found.keys()) / len(clear) >= 0.97
    assert len(far & found.keys()) / len(far) <= 0.03
    near = {name for name, share in similar.items() if share >= 0.8}
    assert len(near & found.keys()) / len(near) >= 0.85
    precision = len(near & found.keys()) / len(found)
    assert precision >= 0.85
