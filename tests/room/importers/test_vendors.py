"""Sessions by vendors' models are marked, so that no shard trains on them unasked."""

from pathlib import Path

import pytest

from penstock_jobs.importers.session_import import VENDOR_MODEL, vendor_of
from tests.support.claude_code_rows import SESSION, answers, asks, said, write
from tests.support.commands import penstock
from tests.support.session_sources import events_of, take

RECIPE = """name = "mine"
query = "all.sql"
[tokens]
source = "render"
tokenizer = "nowhere.json"
[exclude]
consent = "not_denied"
"""


@pytest.mark.parametrize(
    ("model", "vendor"),
    [
        ("claude-opus-4-5-20251101", "Anthropic"),
        ("us.anthropic.claude-sonnet-4-5", "Anthropic"),
        ("openrouter/anthropic/claude-haiku-4.5", "Anthropic"),
        ("gpt-5.5", "OpenAI"),
        ("o3", "OpenAI"),
        ("gemini-3-pro", "Google"),
        ("azure-gpt-5-mini", "OpenAI"),
        ("proxy_haiku_eval", "Anthropic"),
        ("bedrock_claude-sonnet-4", "Anthropic"),
        ("team-gemini-3", "Google"),
        ("claude", "Anthropic"),
        ("gpt-oss-120b", None),
        ("groq-gpt-oss-20b", None),
        ("opuscule-7b", None),
        ("qwen3-coder", None),
        ("Qwen/o1-like", "OpenAI"),
        ("", None),
        (None, None),
    ],
)
def test_the_name_of_a_model_says_whose_it_is(model: str | None, vendor: str | None) -> None:
    assert vendor_of(model) == vendor


def test_a_session_is_marked_once_with_its_first_answer(tmp_path: Path) -> None:
    rows = [asks(0, "Fix it"), answers(1, "m1", said("Yes.")), answers(2, "m2", said("Done."))]
    events = events_of(write(tmp_path, *rows), marks=True)
    [mark] = [event for event in events if event["type"] == VENDOR_MODEL]
    assert mark["payload"] == {
        "vendor": "Anthropic",
        "model": "claude-opus-4-5",
        "trainable": False,
    }


def test_a_shard_leaves_it_out_and_says_why(tmp_path: Path) -> None:
    """Unless the recipe says otherwise: then the build goes on, here to a missing tokenizer."""
    rows = [asks(0, "Fix it"), answers(1, "m1", said("Yes."))]
    take(tmp_path / "data", [write(tmp_path / "home", *rows)])
    query = f"select session_id from sessions where session_id = '{SESSION}'"
    (tmp_path / "all.sql").write_text(query)
    recipe = tmp_path / "mine.toml"
    for keep, reason in ((False, "not_trainable"), (True, "nowhere.json")):
        recipe.write_text(RECIPE + ("vendor_models = false\n" if keep else ""))
        done = penstock("shards", "build", str(recipe), "--data", str(tmp_path / "data"))
        assert done.returncode != 0
        assert reason in done.stderr
