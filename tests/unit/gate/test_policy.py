"""Policies as people write them: what cannot be meant is refused by name."""

import pytest

from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.gate.policy import Guard, Requirement, parse

WHOLE = """
[[require]]
suite = "core"
metric = "score"
direction = "max"
minimum = 0.40
margin = 0.02
alpha = 0.05
min_tasks = 50
attempts = 4
[[guard]]
suite = "core"
metric = "completion_tokens"
max_increase = 0.10
[[guard]]
suite = "eager"
metric = "edited"
max = 0.1
[[live]]
metric = "edit_persistence"
margin = 0.02
min_sessions = 500
[canary]
steps = [0.1, 0.5]
min_age = "2h"
[evidence]
max_age = "24h"
max_error_share = 0.02
[suites]
eager = "sha256:abc"
"""


def test_a_whole_policy_is_read() -> None:
    policy = parse(WHOLE, "it")
    assert policy.require == (
        Requirement(suite="core", minimum=0.4, margin=0.02, min_tasks=50, attempts=4),
    )
    assert policy.guards[1] == Guard(suite="eager", metric="edited", kind="max", limit=0.1)
    assert policy.suites == ["core", "eager"]
    assert policy.evidence.max_age_s == 86_400
    assert policy.canary is not None
    assert (policy.canary.steps, policy.canary.min_age_s) == ((0.1, 0.5), 7_200)
    assert policy.live[0].min_sessions == 500
    assert policy.versions == {"eager": "sha256:abc"}
    assert policy.digest == text_digest(WHOLE)


LEAST = '[[require]]\nsuite = "core"\n'
GUARD = LEAST + 'margin = 0.1\n[[guard]]\nsuite = "core"\nmetric = "cost_usd"\n'
LEFT = LEAST + 'margin = 0.1\n[[leave_out]]\nsuite = "core"\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no [[require]]"),
        ("[[require]]\nmargin = 0.1", "suite has to be a text"),
        (LEAST, "a margin, a minimum or both"),
        (LEAST + "marign = 0.1", "did you mean margin?"),
        (LEAST + "margin = -0.1", "must be between 0 and 1"),
        (LEAST + "margin = 0", "a margin below"),
        (LEAST + "margin = 1e-10", "a margin below"),
        (LEAST + "margin = nan", "has to be a number"),
        (LEAST + "margin = 2", "between 0 and 1"),
        (LEAST + "margin = 1", "anything would pass"),
        (LEAST + "margin = 0.1\nminimum = 0", "anything would pass"),
        (LEAST + 'margin = 0.1\nmetric = "scores"', "did you mean score?"),
        (LEAST + "margin = 0.1\nalpha = 0.5", "alpha must be from"),
        (LEAST + "margin = 0.1\nmin_tasks = 3", "from 10 on"),
        (LEAST + "maximum = 0.1", "its minimum, not its maximum"),
        (LEAST + 'minimum = 0.1\ndirection = "min"', "its maximum, not its minimum"),
        (GUARD, "exactly one of"),
        (GUARD + "max = 1\nmin = 0", "exactly one of"),
        (LEAST + 'margin = 0.1\n[guard]\nsuite = "a"', "[[guard]]"),
        (LEAST + "margin = 0.0", "such as margin = 0.02"),
        (GUARD + "max_increase = 0", "max_increase = 0 leaves no room"),
        (LEAST + "margin = 0.1\nmost = 9", "`most` has no meaning"),
        (LEAST + 'margin = 0.1\nmetric = "steps"\nmost = 0', "most must be over 0"),
        (LEFT + 'tasks = ["t"]', "needs a reason"),
        (LEFT + 'tasks = ["t"]\nreason = " "', "needs a reason"),
        (LEFT + 'tasks = []\nreason = "r"', "names no tasks"),
        (LEFT.removesuffix('re"\n') + 'r"\ntasks = ["t"]\nreason = "r"', "did you mean core?"),
        (LEFT + 'tasks = ["t", "t"]\nreason = "r"', "t of core is left out twice"),
        (LEAST + "margin = 0.1\n[canary]\nsteps = [0.5, 0.1]", "must grow"),
        (LEAST + 'margin = 0.1\n[suites]\nother = "v1"', "core"),
        (LEAST + 'margin = 0.1\n[gate]\ncombine = "some"', "all or any"),
        ("= 1", "cannot be used"),
        (LEAST + "margin = 1" + "0" * 400, "has to be a number"),
        (LEAST + "margin = 1" + "0" * 5_000, "digits"),
        ("x = " + "[" * 5_000, "nested too deeply"),
        (LEAST + 'margin = 0.1\n[evidence]\nmax_age = "' + "9" * 5_000 + 'd"', "such as 90s"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text, "the file")
    assert why in str(refused.value)
    assert "the file" in str(refused.value)


LEFT_OUT = """
[[leave_out]]
suite = "core"
tasks = ["t-1", "t-2"]
reason = "their image is gone"
[[leave_out]]
suite = "core"
tasks = ["t-9"]
reason = "it needs the network"
"""


def test_tasks_may_be_left_out_with_a_reason() -> None:
    policy = parse(WHOLE + LEFT_OUT, "it")
    assert policy.left_out("core") == {
        "t-1": "their image is gone",
        "t-2": "their image is gone",
        "t-9": "it needs the network",
    }
    assert policy.left_out("eager") == {}
    assert policy.digest != parse(WHOLE, "it").digest
