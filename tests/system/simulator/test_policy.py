"""The policy can be trained from the ids and log-probabilities that events carry."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.simulator.journal import SimulatedSession
from penstock_jobs.simulator.policy import (
    CHOICES,
    POLICIES,
    STYLE_IDS,
    STYLES,
    TASK_IDS,
    TOKENIZER,
    Policy,
    Task,
    policy_of,
    read_policy,
)
from penstock_jobs.simulator.production import Checkpoint, Production
from tests.support.policy_worth import worth_of
from tests.support.repository import ROOT

UNIFORM = policy_of(1, **dict.fromkeys(STYLE_IDS, 1.0))


def tokens_of(lived: SimulatedSession) -> list[dict[str, Any]]:
    events = [msgspec.json.decode(line) for _, kind, line in lived.lines if kind == "model_call"]
    return [event["payload"]["tokens"] for event in events]


@pytest.mark.parametrize("name", POLICIES)
def test_log_probabilities_can_be_recomputed_from_ids_alone(name: str) -> None:
    policy = POLICIES[name]
    production = Production(3, [Checkpoint("c", policy)])
    calls = [one for some in production.sessions(40) for one in tokens_of(some[0])]
    assert len(calls) > 80
    for tokens in calls:
        ids = tokens["prompt_ids"] + tokens["completion_ids"]
        begin = len(tokens["prompt_ids"])
        assert tokens["tokenizer"] == TOKENIZER
        assert tokens["policy_version_runs"] == [[0, policy.version]]
        assert tokens["logprobs"] == [
            policy.log_probability(ids[at - 1], ids[at]) for at in range(begin, len(ids))
        ]


def test_the_page_says_of_ids_what_the_code_says() -> None:
    page = (ROOT / "bench/pages/simulator.md").read_text(encoding="utf-8")
    for style in STYLES:
        assert f"\n| {style.name} | {STYLE_IDS[style.name]} |" in page
        if not style.asks:
            clear, risky = style.mean_quality("clear"), style.mean_quality("risky")
            assert f"{STYLE_IDS[style.name]} | {clear:.2f} / {risky:.2f} |" in page
        alone = policy_of(0, **{style.name: 1e9})
        assert f" | {worth_of(alone):.2f} |\n" in page
    for name, policy in POLICIES.items():
        assert re.search(rf"`{name}` \((worth )?{worth_of(policy):.2f}\)", page), name


def test_the_first_three_stand_in_the_order_of_their_worth() -> None:
    worth = {name: worth_of(policy) for name, policy in POLICIES.items()}
    assert worth["weak"] < worth["fair"] < worth["good"]
    assert max(worth[name] for name in ("asks", "comments", "tiny", "breaks")) < worth["fair"]


def test_a_policy_comes_back_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_bytes(POLICIES["good"].to_json())
    assert read_policy(str(file)) == POLICIES["good"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "Expected `object`"),
        ('{"version": 1, "logits": {"clear": {"careful": 1}}}', "logits of clear need careful"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_with_its_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=why):
        read_policy(str(file))


def test_a_name_that_is_no_policy_is_refused() -> None:
    with pytest.raises(InvalidInput, match="none of weak, fair, good"):
        read_policy("best")


def worth(lived: SimulatedSession) -> float | None:
    return lived.truth.worth


def trained(reward: Callable[[SimulatedSession], float | None], rounds: int = 10) -> Policy:
    """Policy gradient on the samples' ids, with the mean of the reward as the baseline."""
    policy = UNIFORM
    for number in range(rounds):
        production = Production(number, [Checkpoint(f"c{number}", policy)])
        lived = [some[0] for some in production.sessions(250)]
        rewards = [(one, value) for one in lived if (value := reward(one)) is not None]
        values = np.array([value for _, value in rewards])
        advantages = (values - values.mean()) / (values.std() + 1e-6)
        table = {task: np.array(logits) for task, logits in policy.logits.items()}
        for (one, _), advantage in zip(rewards, advantages, strict=True):
            for tokens in tokens_of(one):
                _step(table, policy, tokens, advantage / len(rewards))
        logits: dict[Task, tuple[float, ...]] = {
            task: tuple(found.tolist()) for task, found in table.items()
        }
        policy = Policy(logits, policy.version + 1)
    return policy


def _step(table: dict[Task, Any], policy: Policy, tokens: dict[str, Any], advantage: float) -> None:
    before, token = tokens["prompt_ids"][-1], tokens["completion_ids"][0]
    for task, known in TASK_IDS.items():
        if known == before:
            chosen = np.zeros(len(STYLES))
            chosen[CHOICES[before].index(token)] = 1
            table[task] += 8 * advantage * (chosen - np.array(policy.probabilities(task)))


def test_a_policy_learns_from_the_truth() -> None:
    assert worth_of(UNIFORM) < 0.4
    assert worth_of(trained(worth)) > 0.7
