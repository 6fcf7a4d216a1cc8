"""Engine tokens as branches: exact prefixes go on, others fork, nothing is trained twice."""

import base64
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_jobs.shards.conversation.token_payload import (
    EngineTokens,
    ExpectedTokens,
    PromptMemory,
    read_tokens,
)
from penstock_jobs.shards.rows.engine_branches import (
    Branch,
    SessionBranches,
    TokenSpan,
    engine_branches,
)
from tests.support.shards.talks import Talk, routes, tokens

DIGEST = "ab" * 32


def branched(*calls: dict[str, Any] | None, **expected: Any) -> SessionBranches:
    """Of a session of these calls, each with a message of the user before it."""
    talk = Talk()
    for number, said in enumerate(calls):
        talk.user("go").model("a", call_id=f"m{number}", tokens=said)
    return engine_branches(talk.conversation(), ExpectedTokens(**expected))


def parts(branch: Branch) -> list[tuple[list[int], bool]]:
    """The ids of each span, and whether they are trained."""
    ids = branch.input_ids.tolist()
    return [(ids[span.start : span.end], span.sampled) for span in branch.spans]


def test_a_prompt_that_begins_with_the_branch_goes_on_with_it() -> None:
    [branch] = branched(tokens([1, 2], [3, 4]), tokens([1, 2, 3, 4, 5], [6])).branches
    assert branch.input_ids.dtype == np.int32
    assert branch.input_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert branch.loss_mask.tolist() == [0, 0, 1, 1, 0, 1]
    assert branch.rollout_logprobs is not None
    assert branch.rollout_logprobs.tolist() == [0, 0, -0.5, -0.5, 0, -0.5]
    assert branch.spans == (
        TokenSpan(0, 2, 1, 1, False, 1), TokenSpan(2, 4, 1, 2, True, 2),
        TokenSpan(4, 5, 2, 1, False, 3), TokenSpan(5, 6, 2, 2, True, 4),
    )  # fmt: skip
    assert (branch.prompt_len, branch.n_trainable, branch.calls) == (2, 3, (0, 1))
    assert (branch.parent, branch.link, branch.problems) == (None, None, ())


@pytest.mark.parametrize(
    "prompt",
    [
        [1, 2, 3, 9, 5],  # differs within what was written, as where a template dropped a thought
        [1, 2],  # the same prompt again
        [1, 2, 3],  # ends within what was written
        [9, 2, 3, 4, 5],
    ],
)
def test_any_other_prompt_forks(prompt: list[int]) -> None:
    first, second = branched(tokens([1, 2], [3, 4]), tokens(prompt, [6])).branches
    assert parts(first) == [([1, 2], False), ([3, 4], True)]
    assert parts(second) == [(prompt, False), ([6], True)]
    assert (second.parent, second.link) == (0, "fork")
    found = branched(tokens([1], [2], tokenizer="a"), tokens([1, 2], [3], tokenizer="b"))
    assert [branch.tokenizer for branch in found.branches] == ["a", "b"]


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"prompt_ids": [], "completion_ids": [], "logprobs": []},
        {"prompt_ids": None, "completion_ids": None, "logprobs": None},
        {"prompt_ids": [1, 2], "completion_ids": []},
    ],
)
def test_empty_arrays_are_text_alone(said: Any) -> None:
    found = branched(said)
    assert (found.branches, found.problems) == ([], [])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("prompt_ids_missing", tokens([], [6])),
        ("logprobs_length", tokens([1, 2, 5], [6], logprobs=[-0.1, -0.1])),
        ("logprobs_positive", tokens([1, 2, 5], [6], logprobs=[1e-7])),
        ("logprobs_not_finite", tokens([1, 2, 5], [6], logprobs=[-1e300])),
        ("ids_out_of_range", tokens([1, 2, 2**31], [6])),
        ("ids_out_of_range", tokens([1, 2, 2**80], [6])),
        ("ids_out_of_range", tokens([1, 2, 5], [-1])),
        ("ids_out_of_range", tokens([1, 2, 5], [1000])),
        ("version_runs", tokens([1, 2, 5], [6], policy_version_runs=[[1, 7]])),
        ("version_runs", tokens([1, 2, 5], [6], policy_version_runs=[[0, 7], [1, 8]])),
        ("version_runs", tokens([1, 2, 5], [6, 6], policy_version_runs=[[0, 7], [0, 8]])),
        ("tokens_unreadable", tokens([1, 2, 5], ["six"])),  # type: ignore[list-item]
        ("tokens_unreadable", tokens([1, 2, 5], [6], logprobs=[None])),
        ("tokens_unreadable", [1, 2]),
        ("other_tokenizer", tokens([1, 2, 5], [6], tokenizer="sha256:" + "cd" * 32)),
    ],
)
def test_a_broken_call_is_a_named_problem_and_costs_the_others_nothing(
    kind: str, said: dict[str, Any]
) -> None:
    last = tokens([1, 2, 5, 6, 7], [8])
    found = branched(tokens([1], [2]), said, last, vocabulary=1000, tokenizer=DIGEST)
    [branch] = found.branches
    assert parts(branch) == [([1], False), ([2], True), ([5, 6, 7], False), ([8], True)]
    assert branch.problems == (kind,)
    assert [(one.kind, one.call_id, one.seq) for one in found.problems] == [(kind, "m1", 4)]


def test_where_some_calls_have_logprobs_the_others_are_read_alone() -> None:
    found = branched(tokens([1], [2], logprobs=None), tokens([1, 2], [3]), tokens([9], [9]))
    assert parts(found.branches[0]) == [([1], False), ([2], False), ([3], True)]
    assert found.branches[0].calls == (1,)
    assert [one.kind for one in found.problems] == ["logprobs_missing"]
    # What is broken before all branches is said of the first.
    [branch] = branched(tokens([1], [2], logprobs=[-1.0] * 3), tokens([1, 2], [3])).branches
    assert branch.problems == ("logprobs_length",)


def test_versions_count_from_the_beginning_of_the_branch() -> None:
    [branch] = branched(
        tokens([1, 2], [3, 4, 5], policy_version_runs=[[0, 7], [1, 7], [2, "8"]]),
        tokens([1, 2, 3, 4, 5, 6], [7], policy_version_runs=[[0, 8]]),
        tokens([1, 2, 3, 4, 5, 6, 7], [8], policy_version_runs=[[0, 9]]),
    ).branches
    assert branch.version_runs == ((2, 7), (4, 8), (7, 9))


def test_after_a_rollback_of_the_model_a_branch_forks() -> None:
    found = branched(
        tokens([1], [2], policy_version_runs=[[0, 8]]),
        tokens([1, 2], [3], policy_version_runs=[[0, 7]]),
        tokens([1, 2, 3], [4], policy_version_runs=None),
        tokens([1, 2, 3, 4], [5], policy_version_runs=[[0, 6]]),
        tokens([1, 2, 3, 4, 5], [6, 7], policy_version_runs=[[0, 6], [1, 5]]),
    )
    assert [branch.calls for branch in found.branches] == [(0,), (1, 2), (3,)]
    assert [one.kind for one in found.problems] == ["version_runs"]


@pytest.mark.parametrize("runs", [None, [], [[0, "main"]], [[0, 2**31]], [[0, True]], [[0, 1.5]]])
def test_versions_are_known_of_all_or_of_none(runs: Any) -> None:
    found = branched(tokens([1], [2]), tokens([1, 2], [3], policy_version_runs=runs))
    [branch] = found.branches
    assert branch.version_runs is None
    assert branch.n_trainable == 2
    assert [one.kind for one in found.problems] == ["versions_not_numbers"] * bool(runs)


def test_each_run_of_temperatures_begins_with_the_tokens_of_a_call() -> None:
    def temperatures(*values: Any) -> Any:
        talk, prompt = Talk(), [1]
        for value in values:
            talk.user("go").model("a", tokens=tokens(prompt, [2, 3]), sampling=value)
            prompt = [*prompt, 2, 3, 4]
        [branch] = engine_branches(talk.conversation(), ExpectedTokens()).branches
        return branch.temperature_runs, branch.temperature

    hot, cold = {"temperature": 1.5}, {"temperature": 1}
    assert temperatures(hot, hot, cold) == (((1, 1.5), (7, 1.0)), None)
    assert temperatures(cold, cold) == (((1, 1.0),), 1.0)
    assert temperatures(hot, {}) == temperatures({"temperature": "hot"}) == (None, None)


def test_after_a_compaction_the_link_says_so() -> None:
    talk = Talk().user("go").model("a", call_id="m", tokens=tokens([1], [2]))
    talk.add("compaction", {"summary_call_id": "m"}).model("b", tokens=tokens([5], [6]))
    talk.model("c", tokens=tokens([7], [8]))
    found = engine_branches(talk.conversation(), ExpectedTokens()).branches
    assert [(one.parent, one.link) for one in found] == [
        (None, None), (0, "compaction"), (1, "fork"),
    ]  # fmt: skip


def test_copies_and_what_no_model_said_are_not_trained() -> None:
    talk = Talk().user("go").model("a", tokens=tokens([1], [2]))
    talk.model("b", tokens=tokens([1, 2], [3]), model="<synthetic>")
    talk.model("c", tokens=tokens([1, 2, 3], [4]))
    [branch] = engine_branches(
        talk.conversation(copied=frozenset({"e2"})), ExpectedTokens()
    ).branches
    assert parts(branch) == [([1, 2, 3], False), ([4], True)]


# Experts


def expert_rows(branch: Branch) -> list[int]:
    assert branch.routes is not None
    rows = np.frombuffer(branch.routes.data, np.uint8).reshape(branch.routes.rows, 4)
    return [int(row[0]) for row in rows]


def test_experts_are_those_that_each_token_was_sampled_with() -> None:
    [branch] = branched(
        tokens([1, 2], [3, 4], routed_experts=routes(3)),
        tokens([1, 2, 3, 4, 5], [6], routed_experts=routes(5, first=50)),
    ).branches
    assert branch.routes is not None
    assert (branch.routes.start, branch.routes.layers, branch.routes.topk) == (0, 2, 2)
    assert expert_rows(branch) == [0, 1, 2, 53, 54]  # the last token was never fed


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("routes_length", routes(9)),
        ("routes_length", routes(3) | {"shape": [4, 2, 2]}),
        ("routes_unreadable", routes(3) | {"data": "?"}),
        ("routes_unreadable", routes(3) | {"dtype": "float32"}),
        ("routes_unreadable", routes(3) | {"shape": [3, 4]}),
        ("routes_unreadable", routes(3) | {"shape": []}),
        ("routes_unreadable", "none"),
        ("routes_not_experts", routes(3) | {"data": base64.b64encode(bytes(12)).decode()}),
        ("routes_not_experts", {"data": "/////w==", "shape": [2, 1, 1], "dtype": "int16"}),
    ],
)
def test_broken_experts_cost_the_experts_alone(kind: str, said: Any) -> None:
    found = branched(tokens([1, 2], [3, 4], routed_experts=said))
    [branch] = found.branches
    assert branch.routes is None
    assert branch.n_trainable == 2
    assert [one.kind for one in found.problems] == [kind]


def test_experts_with_gaps_are_none() -> None:
    first = tokens([1, 2], [3, 4], routed_experts=routes(2))
    [branch] = branched(first, tokens([1, 2, 3, 4, 5], [6], routed_experts=routes(1))).branches
    assert branch.routes is None
    assert branch.problems == ("routes_incomplete",)
    [branch] = branched(first, tokens([1, 2, 3, 4, 5], [6])).branches
    assert branch.problems == ("routes_incomplete",)
    [branch] = branched(tokens([1], [2], routed_experts=None)).branches
    assert branch.problems == ()


# Properties

SMALL_IDS = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@st.composite
def sessions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls that go on with any call before, with none, or are broken."""
    whole: list[list[int]] = [[]]
    calls = []
    for _ in range(draw(st.integers(1, 8))):
        prompt = [*draw(st.sampled_from(whole)), *draw(SMALL_IDS)]
        completion = draw(SMALL_IDS)
        said = tokens(prompt, completion)
        match draw(st.integers(0, 5)):
            case 0:
                said["logprobs"] = [0.5] * len(completion)
            case 1:
                said = draw(st.sampled_from([None, {"completion_ids": [2**40]}]))
        calls.append(said)
        whole.append(prompt + completion)
    return calls


def is_whole(said: dict[str, Any] | None) -> bool:
    return said is not None and "prompt_ids" in said and max(said["logprobs"]) <= 0


@settings(max_examples=50)
@given(sessions())
def test_every_token_that_was_written_is_trained_once(calls: list[dict[str, Any]]) -> None:
    found = branched(*calls)
    trained: list[int] = []
    for branch in found.branches:
        sampled = [ids for ids, is_sampled in parts(branch) if is_sampled]
        assert len(sampled) == len(branch.calls)
        for number, ids in zip(branch.calls, sampled, strict=True):
            assert ids == calls[number]["completion_ids"]
        trained += branch.calls
        # The last call read and wrote exactly the branch.
        last = calls[branch.calls[-1]]
        assert branch.input_ids.tolist() == last["prompt_ids"] + last["completion_ids"]
        assert branch.spans[0].start == 0
        ends = [span.end for span in branch.spans]
        assert [span.start for span in branch.spans[1:]] == ends[:-1]
        assert branch.loss_mask.sum() == branch.n_trainable
    assert sorted(trained) == [number for number, said in enumerate(calls) if is_whole(said)]


ANY_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip
FIELDS = (
    "prompt_ids", "completion_ids", "logprobs", "policy_version_runs", "routed_experts",
    "tokenizer",
)  # fmt: skip


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(FIELDS), ANY_JSON), st.sampled_from([None, 5]))
def test_no_tokens_raise(changes: dict[str, Any], vocabulary: int | None) -> None:
    said = json.loads(json.dumps(tokens([1], [2]) | changes))
    found = branched(tokens([3], [4]), said, tokens([3, 4], [1]), vocabulary=vocabulary)
    assert found.branches[0].calls[0] == 0
    assert any(2 in branch.calls for branch in found.branches)


@pytest.mark.parametrize("comma", [", ", ","])
def test_a_prompt_that_goes_on_is_decoded_as_any_other(comma: str) -> None:
    """A memory of what was before changes nothing but the time that it takes."""
    texts = [
        ("[1,2]", "[3]"),
        ("[1,2,3,4]", "[5,6]"),  # goes on
        ("[1,2,3,4,5,6]", "[7]"),  # the same, and nothing new
        ("[1,2,3,4,5,67]", "[8]"),  # ends in other digits
        ("[1,2,9]", "[1]"),  # forks
        ("[1,2,9,1,]", "[1]"),  # broken
        ("[1,2,9,1,null]", "[1]"),
        ("[1,2,9,1,1,4]", "[]"),
        ("[]", "[1]"),
    ]
    memory = PromptMemory()
    for prompt, completion in texts:
        given = f'{{"prompt_ids":{prompt},"completion_ids":{completion}}}'.replace(",", comma)
        raw = msgspec.Raw(given.encode())
        found, alone = (read_tokens(raw, ExpectedTokens(), own) for own in (memory, PromptMemory()))
        if isinstance(alone, EngineTokens):
            assert isinstance(found, EngineTokens)
            assert found.prompt.tolist() == alone.prompt.tolist()
            assert found.completion.tolist() == alone.completion.tolist()
        else:
            assert found == alone
