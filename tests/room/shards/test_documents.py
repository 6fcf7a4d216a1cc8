"""Shards of texts: files of a repository and of sessions, with licence, consent and reasons."""

import re
import subprocess
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from penstock.access.privacy.consents import decide_consent
from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.registry.checkpoints.suites import SuiteContent, SuiteTask, SuiteVersion, add_suite
from penstock.shards.reader import read_shard
from penstock.shards.registered_shards import find_shard
from penstock.shards.validation import verify_shard
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.shards.build import ShardBuild
from penstock_jobs.shards.consents import withdraw
from penstock_jobs.shards.recipe import Recipe, load_recipe
from penstock_jobs.shards.selection.plan import NothingToBuild
from tests.support.engine_lake import built, rows_of
from tests.support.lakes import HandLake, hand_lake, make_event
from tests.support.repository import ROOT
from tests.support.reward_runs import run_at, seen, worked

RECIPES = ROOT / "examples" / "recipes"
RECIPE = """
name = "text"
{query}
[tokens]
tokenizer = "tokenizer.json"
max_length = {length}
[text]
separator = "<|endoftext|>"
files = ["*.py", "*.md"]
max_bytes = 2000
{sources}
[exclude]
suites = {suites}
near_duplicates = true
[split]
eval = {share}
keep = "{keep}"
"""
SOURCE = """
[[text.repositories]]
path = "web"
repo = "shop/web"
license = "MIT"
"""
TASK = " ".join(f"word{number} of the task" for number in range(30))
LONG = "\n".join(f"value_{number} = compute({number}, 'é')" for number in range(20))
NEARLY = LONG + "\nmore = 1\n"
END = 256  # the separator
KEY = "AKIAIOSFODNN7QWERTYU"  # made up
FILES: dict[str, str | bytes] = {
    "a.py": "print('a')\n",
    "b.py": "print('b') # <|endoftext|> is text here\n",
    "copy/b.py": "print('b') # <|endoftext|> is text here\n",
    "docs/task.md": f"# Task\n\n{TASK}\n",
    "docs/wide.md": "wide\n" * 1000,
    "empty.py": "\n",
    "key.py": f"aws_access_key_id = '{KEY}'\n",
    "long.py": LONG,
    "nearly.py": NEARLY,
    "other.rs": "fn main() {}\n",
    "z.py": b"\xff\xfe\x00",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe's folder, with a repository that has all of FILES but one uncommitted."""
    folder = tmp_path_factory.mktemp("recipes")
    for path, content in FILES.items():
        file = folder / "web" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "web" / "link.py").symlink_to("a.py")
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*named, "commit", "-qm", "all")):
        subprocess.run(["git", "-C", str(folder / "web"), *arguments], check=True)
    (folder / "web" / "new.py").write_text("not committed")
    for name in ("tokenizer.json", "survived.sql"):
        (folder / name).write_bytes((RECIPES / name).read_bytes())
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path / "data") as lake:
        yield lake


@pytest.fixture
def recipe(folder: Path) -> Callable[..., Recipe]:
    def make(**changed: Any) -> Recipe:
        values: dict[str, Any] = {"query": "", "sources": SOURCE, "suites": [], "length": 64}
        text = RECIPE.format(**values | {"share": 0.0, "keep": "both"} | changed)
        (folder / "text.toml").write_text(text)
        return load_recipe(folder / "text.toml")

    return make


def texts_of(lake: HandLake, shard: ShardBuild) -> dict[tuple[str, str], str]:
    """The text of each file and its side, put together from the tokens of its pieces."""
    tokenizer = Tokenizer.from_str((RECIPES / "tokenizer.json").read_text())
    tokens: dict[tuple[str, str], list[int]] = {}
    digests: dict[tuple[str, str], str] = {}
    for row in rows_of(lake, shard):
        assert (row["loss_mask"], row["messages"]) == ([1] * row["n_tokens"], "[]")
        assert row["group_id"] == f"{row['session_id']}#{row['branch_index']:06d}"
        for span, file in zip(row["turn_spans"], row["documents"], strict=True):
            key = row["split"], file["path"]
            digests[key] = file["sha256"]
            tokens.setdefault(key, []).extend(row["input_ids"][span["start"] : span["end"]])
    assert all(ids[-1] == END and END not in ids[:-1] for ids in tokens.values())
    texts = {key: tokenizer.decode(ids[:-1]) for key, ids in tokens.items()}
    assert {key: sha256(text.encode()).hexdigest() for key, text in texts.items()} == digests
    return texts


def test_files_of_a_repository_are_rows_one_after_the_other(
    lake: HandLake, recipe: Callable[..., Recipe]
) -> None:
    suite = SuiteVersion("core", "1", (SuiteTask("t-1"),), SuiteContent(texts=(("t-1", TASK),)))
    add_suite(lake.lake.database, TENANT_DEFAULT, suite)
    shard = built(lake, recipe(suites='["core"]'))
    texts = {path: text for (_, path), text in texts_of(lake, shard).items()}
    assert texts.pop("key.py").startswith("aws_access_key_id = '[SECRET:")
    assert texts == {path: FILES[path] for path in ("a.py", "b.py", "nearly.py")}
    counts = shard.manifest.counts
    assert counts.excluded == {
        "contaminated_text": 1,
        "duplicate": 1,
        "near_duplicate": 1,
        "no_text": 2,
        "too_large": 1,
    }
    rows = rows_of(lake, shard)
    [origin] = {row["session_id"] for row in rows}
    assert re.fullmatch("shop/web@[0-9a-f]{40}", origin)
    assert [one.detail for one in shard.left_out] == [
        "docs/task.md: t-1 of core: 100% of its runs of 13 words",
        f"copy/b.py: of b.py in {origin}",
        f"long.py: of {sha256(NEARLY.encode()).hexdigest()}",
        "empty.py",
        "z.py",
        "docs/wide.md: 5000 bytes",
    ]
    assert {row["n_tokens"] for row in rows[:-1]} == {64}
    assert {(row["license"], row["consent"]) for row in rows} == {("MIT", "train")}
    assert (counts.sessions, counts.samples) == (1, len(rows))
    assert verify_shard(shard.stored).problems == []
    listed = "select distinct file.path as path from samples, unnest(documents) as of(file)"
    assert len(lake.rows(listed)) == 4
    again = built(lake, recipe(suites='["core"]'))
    assert (again.manifest.id, again.new) == (shard.manifest.id, False)


def test_no_file_is_on_both_sides_whatever_the_seed_and_the_length(
    lake: HandLake, recipe: Callable[..., Recipe]
) -> None:
    both = texts_of(lake, built(lake, recipe(share=0.5)))
    sides = {path: side for side, path in both}
    assert {*sides.values()} == {"eval", "train"}
    for keep in ("eval", "train"):
        shard = built(lake, recipe(share=0.5, keep=keep, length=9, query="seed = 5"))
        own = {path for _, path in texts_of(lake, shard)}
        assert own == {path for path, side in sides.items() if side == keep}
        assert shard.manifest.counts.excluded["other_side"] == len(sides) - len(own)


def test_files_that_survived_come_from_sessions_with_consent(
    lake: HandLake, recipe: Callable[..., Recipe]
) -> None:
    said = {"train": "train", "denied": "no_train", "unsaid": None, "undone": "train"}
    for number, (session, consent) in enumerate(said.items()):
        at = 10_000 * (number + 1)
        payload = {"consent": consent} if consent else {}
        begun = make_event(session, at - 1, "session_start", payload=payload)
        text = "undone = 1\n" if session == "undone" else f"a = 1\nb = compute(2)\n# {session}\n"
        events = [begun, *worked(session, at), seen(session, at + 700, text)]
        lake.store([event | {"project": f"p-{session}"} for event in events])
    run_at(lake, 100_000, find_definition())
    shard = built(lake, recipe(query='query = "survived.sql"', sources=""))
    [(key, text)] = texts_of(lake, shard).items()
    assert (key, text) == (("train", "src/app.py"), "a = 1\nb = compute(2)\n# train\n")
    assert shard.manifest.counts.excluded == {"consent_denied": 1, "consent_unknown": 1}
    [row] = rows_of(lake, shard)
    assert (row["session_id"], row["token_source"]) == ("train", "text")
    assert (row["license"], row["consent"]) == ("LicenseRef-own", "train")
    assert shard.manifest.counts.sessions == 1
    # What the session's user says later reaches the shard.
    database, who = lake.lake.database, TENANT_DEFAULT
    decide_consent(database, who, "session", "train", "no_train", reason="", by="u")
    _, [marked] = withdraw(lake.lake, who, "session", "train")
    assert (marked.shard, marked.sessions) == (shard.manifest.id, 1)
    with pytest.raises(NothingToBuild, match="consent_denied 2"):
        built(lake, recipe(query='query = "survived.sql"', sources=""))
    order = order_erasure(
        lake.lake, ErasureScope(who, "session", "train", 2**62), reason="", by="u"
    )
    carry_out(lake.lake, order)
    assert find_shard(database, who, shard.manifest.id).gone == "erased"


def test_a_trainer_reads_rows_with_the_places_of_files(
    lake: HandLake, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    shard = built(lake, recipe())
    columns = ["input_ids", "turn_spans", "documents"]
    reader = read_shard(str(tmp_path / "data"), shard.manifest.id, columns=columns, shuffle=False)
    [batch] = list(reader)
    assert batch["turn_spans.start"][0][0] == 0
    assert batch["documents.path"][0][0] == "a.py"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sources": SOURCE.replace('license = "MIT"', "")}, "license has to be a text"),
        ({"sources": ""}, "query has to be a text"),
    ],
)
def test_what_a_recipe_may_not_say(
    recipe: Callable[..., Recipe], changed: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        recipe(**changed)


@pytest.mark.parametrize(
    ("sql", "sources", "why"),
    [
        (
            "select 's' as session_id",
            "",
            "texts need session_id, path, license, text, not session_id",
        ),
        ("", SOURCE.replace("web", "gone"), "gone"),
    ],
)
def test_what_cannot_be_built(
    lake: HandLake, recipe: Callable[..., Recipe], folder: Path, *, sql: str, sources: str, why: str
) -> None:
    (folder / "own.sql").write_text(sql)
    with pytest.raises(InvalidInput, match=why):
        built(lake, recipe(query='query = "own.sql"' * bool(sql), sources=sources))
