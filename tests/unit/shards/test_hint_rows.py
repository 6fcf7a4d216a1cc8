"""A branch cut to what a hint is about, and the place of a hint in a prompt."""

from typing import Any

import numpy as np
import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.shards.conversation.token_payload import ExpectedTokens
from penstock_jobs.shards.rows.engine_branches import Branch, engine_branches
from penstock_jobs.shards.rows.hint_rows import HintFrame, cut_branch
from penstock_jobs.shards.rows.rendered_branches import ChatTemplate, Renderer
from tests.support.shards.hinted import encoded, renderer
from tests.support.shards.talks import Talk, routes, tokens
from tests.support.tokenizer_files import PLAIN, tokenizer_json


def three_calls() -> Branch:
    talk = Talk().user("go")
    hot: dict[str, Any] = {"sampling": {"temperature": 0.5}}
    talk.model("a", tokens=tokens([1, 2], [3, 4], routed_experts=routes(4)))
    more = {"policy_version_runs": [[0, 7], [1, 8]], "routed_experts": routes(7)}
    talk.model("b", tokens=tokens([1, 2, 3, 4, 5], [6, 7], **more), **hot)
    last = {"policy_version_runs": [[0, 9]], "routed_experts": routes(10)}
    talk.model("c", tokens=tokens([1, 2, 3, 4, 5, 6, 7, 8], [9, 10], **last), **hot)
    [branch] = engine_branches(talk.conversation(), ExpectedTokens()).branches
    return branch


def test_one_call_is_trained_and_all_before_it_is_read() -> None:
    cut = cut_branch(three_calls(), [1])
    assert cut.input_ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert (cut.loss_mask.tolist(), cut.prompt_len) == ([0, 0, 0, 0, 0, 1, 1], 5)
    assert cut.rollout_logprobs is not None
    assert cut.rollout_logprobs.tolist() == [0, 0, 0, 0, 0, -0.5, -0.5]
    assert cut.version_runs == ((5, 7), (6, 8))
    assert (cut.calls, cut.routes and cut.routes.rows) == ((1,), 7)


def test_several_calls_are_trained_with_what_a_tool_said_between_them_read() -> None:
    cut = cut_branch(three_calls(), [1, 2])
    assert cut.loss_mask.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 1, 1]
    assert cut.version_runs == ((5, 7), (6, 8), (8, 9))
    assert cut.temperature is None  # not known of the first call, so of none


def test_a_hint_stands_where_the_answer_is_opened_even_if_the_engine_adds_to_it() -> None:
    frame = HintFrame.of(renderer())
    prompt = encoded("<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n")
    opening = len(encoded("<|im_start|>assistant\n"))
    thinks = encoded("<think>")
    for more in ([], thinks):
        assert frame.place_in(np.array([*prompt, *more])) == len(prompt) - opening
    assert frame.place_in(np.array(prompt[:-opening])) is None
    template = PLAIN.replace("assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif")
    thinking = HintFrame.of(Renderer(ChatTemplate(template, "here"), tokenizer_json(), "made"))
    assert thinking.opening.endswith("<think>\n")
    assert thinking.place_in(np.array([*prompt, *thinks])) == len(prompt) - opening
    assert frame.place_in(np.array([1])) is None


def test_a_template_whose_last_message_differs_takes_no_hint() -> None:
    template = (
        "{% for m in messages %}<|im_start|>{% if loop.last %}last {% endif %}{{ m.content }}"
        "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
    )
    own = Renderer(ChatTemplate(template, "chat.jinja"), tokenizer_json(), "made")
    with pytest.raises(InvalidInput, match=r"chat\.jinja .* it takes no hint"):
        HintFrame.of(own)
