"""Messages as tokens: what the template says, and of it exactly what the model wrote."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from penstock.core.errors import ExtraMissing, InvalidInput
from penstock_jobs.shards.conversation.conversation import Conversation
from penstock_jobs.shards.conversation.token_payload import Ids
from penstock_jobs.shards.rows.engine_branches import Branch, SessionBranches
from penstock_jobs.shards.rows.rendered_branches import ChatTemplate, Renderer, open_renderer
from penstock_jobs.shards.rows.template_process import CompiledTemplate
from tests.support.shards.talks import Talk, asks
from tests.support.tokenizer_files import FORGETFUL, PLAIN, tokenizer_json


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    """By template; `own` is that which comes with Penstock."""
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer = directory / "tokenizer.json"
    tokenizer.write_bytes(tokenizer_json())
    found = {"own": open_renderer(tokenizer)}
    for name, text in (("plain", PLAIN), ("forgetful", FORGETFUL)):
        template = directory / f"{name}.jinja"
        template.write_text(text, encoding="utf-8")
        found[name] = open_renderer(tokenizer, template)
    return found


def make_renderer(template: str) -> Renderer:
    return Renderer(ChatTemplate(template, "here"), tokenizer_json(), "made")


def decode(ids: Ids) -> str:
    library = Tokenizer.from_buffer(tokenizer_json())
    return str(library.decode(ids.tolist(), skip_special_tokens=False))


def written(branch: Branch) -> list[str]:
    ids = branch.input_ids
    return [decode(ids[one.start : one.end]) for one in branch.spans if one.sampled]


def text_of(branch: Branch) -> str:
    return decode(branch.input_ids)


def render_one(template: str, conversation: Conversation) -> str:
    [branch] = make_renderer(template).render(conversation).branches
    return text_of(branch)


def a_session() -> Talk:
    talk = Talk().start(system="Be brief.", tools=[{"type": "function", "n": 1}]).user("Read it.")
    talk.model("I look.", thinking="First read.", calls=[asks("c1"), asks("c2", "run", "{")])
    return talk.result("c1", "def a(): ü").result("c2", "error").model("Done.").user("Thanks")


def test_our_own_template_marks_what_the_model_wrote(renderers: dict[str, Renderer]) -> None:
    found = renderers["own"].render(a_session().conversation())
    [branch] = found.branches
    assert found.problems == []
    assert text_of(branch) == (
        "<|im_start|>system\nBe brief.\n\n"
        "You may call these tools, with their arguments as JSON:\n"
        '{"type": "function", "n": 1}\n'
        'A call is written as <tool_call>{"name": …, "arguments": …}</tool_call>.<|im_end|>\n'
        "<|im_start|>user\nRead it.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nFirst read.\n</think>\n\nI look.\n"
        '<tool_call>{"name": "read", "arguments": {"path":  "a.py"}}</tool_call>\n'
        '<tool_call>{"name": "run", "arguments": {}</tool_call><|im_end|>\n'
        "<|im_start|>tool\ndef a(): ü<|im_end|>\n<|im_start|>tool\nerror<|im_end|>\n"
        "<|im_start|>assistant\nDone.<|im_end|>"
    )
    first, second = written(branch)
    assert first.startswith("<think>\nFirst read.")
    assert first.endswith('{"name": "run", "arguments": {}</tool_call><|im_end|>')
    assert second == "Done.<|im_end|>"
    roles = [(span.role, span.sampled, span.event_seq, span.turn) for span in branch.spans]
    assert roles == [(1, False, 2, 1), (2, True, 3, 1), (3, False, 5, 1), (2, True, 6, 1)]
    assert branch.calls == (0, 1)
    assert branch.token_source == "renderer"
    assert branch.rollout_logprobs is None


def test_a_template_without_blocks_is_compared_with_its_prefixes(
    renderers: dict[str, Renderer],
) -> None:
    found = renderers["plain"].render(a_session().conversation())
    [branch] = found.branches
    assert written(branch) == [
        '<think>First read.</think>I look.{"path":  "a.py"}{<|im_end|>',
        "Done.<|im_end|>",
    ]
    assert text_of(branch).endswith("assistant\nDone.<|im_end|>")


def test_a_template_that_forgets_forks_and_says_so(renderers: dict[str, Renderer]) -> None:
    talk = Talk().user("one").model("a", thinking="hm").model("b", thinking="so").user("two")
    found = renderers["forgetful"].render(talk.model("c").user("three").conversation())
    assert [written(branch) for branch in found.branches] == [
        ["<think>hm</think>a<|im_end|>", "<think>so</think>b<|im_end|>"],
        ["c<|im_end|>"],
    ]
    assert text_of(found.branches[1]) == (
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
        "<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n"
        "<|im_start|>assistant\nc<|im_end|>"
    )
    assert [(one.parent, one.link, one.calls) for one in found.branches] == [
        (None, None, (0, 1)), (0, "fork", (2,)),
    ]  # fmt: skip


def test_blocks_that_leave_out_thoughts_are_not_believed() -> None:
    marked = FORGETFUL.replace(
        "    {%- if message.reasoning_content and",
        "    {%- if message.role == 'assistant' %}{% generation %}{% endgeneration %}{% endif %}\n"
        "    {%- if message.reasoning_content and",
    )
    talk = Talk().user("one").model("a", thinking="hm").user("two").model("b")
    renderer = make_renderer(marked)
    found = renderer.render(talk.conversation())
    assert [written(branch) for branch in found.branches] == [
        ["<think>hm</think>a<|im_end|>"], ["b<|im_end|>"],
    ]  # fmt: skip


def test_what_a_prompt_opens_is_not_what_the_model_wrote() -> None:
    opening = PLAIN.replace(
        "'<|im_start|>assistant\\n' }}{% endif", "'<|im_start|>assistant\\n<think>' }}{% endif"
    )
    renderer = make_renderer(opening)
    talk = Talk().user("one").model("a", thinking="hm").user("two").model("b")
    [branch] = renderer.render(talk.conversation()).branches
    assert written(branch) == ["hm</think>a<|im_end|>", "b<|im_end|>"]


def test_copies_and_what_no_model_said_are_context(renderers: dict[str, Renderer]) -> None:
    talk = Talk().user("one").model("old").model("none", model="<synthetic>").model("new")
    for name in ("own", "plain"):
        conversation = talk.conversation(copied=frozenset({"e2"}))
        [branch] = renderers[name].render(conversation).branches
        assert written(branch) == ["new<|im_end|>"]
        assert branch.calls == (2,)
    copied = Talk().user("one").model("old").conversation(copied=frozenset({"e2"}))
    assert renderers["own"].render(copied) == SessionBranches([], [])


def test_each_context_is_a_branch(renderers: dict[str, Renderer]) -> None:
    talk = Talk().user("one").model("a").model("It went well.", call_id="s")
    talk.add("compaction", {"summary_call_id": "s"}).user("two").model("b")
    first, second = renderers["own"].render(talk.conversation()).branches
    assert written(first)[1] == "It went well.<|im_end|>"
    assert text_of(second).startswith("<|im_start|>user\nIt went well.")
    assert written(second) == ["b<|im_end|>"]
    assert (second.parent, second.link) == (0, "compaction")


def test_tokens_over_a_border_are_not_trained() -> None:
    renderer = make_renderer(
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    assert renderer.encode("::")[0].size == 1
    found = renderer.render(Talk().user("a").model(":b").conversation())
    [branch] = found.branches
    assert written(branch) == ["b"]


def test_a_context_that_the_template_refuses_is_a_problem() -> None:
    renderer = make_renderer(
        "{% if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif %}" + PLAIN
    )
    talk = Talk().user("no").model("a", call_id="s").add("compaction", {"summary_call_id": "s"})
    found = renderer.render(talk.model("b").conversation())
    assert [one.kind for one in found.problems] == ["template_refused"]
    assert [written(branch) for branch in found.branches] == [["b<|im_end|>"]]


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages[0].nothing.at_all }}",
        "{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ strftime_now('%d') }}",
        "{{ messages | length }}",  # what stands before a message depends on it
    ],
)
def test_templates_that_fail_refuse_and_do_not_raise(text: str) -> None:
    found = make_renderer(text).render(Talk().user("a").model("b").conversation())
    assert found.branches == []
    assert [one.kind for one in found.problems] == ["template_refused"]
    assert found.problems[0].detail


def test_json_is_written_as_templates_expect_it() -> None:
    source = (
        "{{ tools | tojson }} {{ tools | tojson(indent=1, sort_keys=true) }}"
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m }}{% endfor %}"
    )
    template = CompiledTemplate(source, chars_max=1000)
    tools = [{"b": "<é&'>", "a": 1.0}]
    expected = json.dumps(tools, ensure_ascii=False)
    expected += " " + json.dumps(tools, ensure_ascii=False, indent=1, sort_keys=True)
    assert template.render([{"role": "user"}], tools) == expected


def test_arguments_can_be_gone_through_and_are_written_as_sent() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{% if c.function.arguments is mapping %}"
        "{% for k, v in c.function.arguments | items %}[{{ k }}={{ v }}]{% endfor %}{% endif %}"
        "{{ c.function.arguments | tojson }};{% endfor %}{% endfor %}"
    )
    calls = [asks("1", arguments='{"b":2,"a":  "x"}'), asks("2", arguments='["no object"')]
    talk = Talk().user("u").model(calls=calls).conversation()
    assert render_one(template, talk) == 'u[b=2][a=x]{"b":2,"a":  "x"};["no object";'


def test_long_texts_are_tokenized_in_pieces_that_change_nothing(
    renderers: dict[str, Renderer],
) -> None:
    talk = Talk()
    for number in range(120):
        talk.user(f"Read üß {number} <|im_start|>" * 20).model("Done <|im_end|> ok." * 10)
    renderer = renderers["own"]
    text = text_of(renderer.render(talk.conversation()).branches[0])
    library = Tokenizer.from_buffer(tokenizer_json())
    library.no_truncation()
    library.no_padding()
    whole = library.encode(text, add_special_tokens=False)
    ids, starts, ends = renderer.encode(text)
    assert ids.tolist() == whole.ids
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == whole.offsets


# Opening


@pytest.mark.parametrize(
    ("tokenizer", "template"),
    [
        (None, None),
        (b"{}", None),
        (b'{"version": "1.0", "model": {"type": "Unheard"}}', None),
        (b"", b"{% for %}"),
        (b"", b"{{ 1 | unheard }}"),
        (b"", b"\xff"),
    ],
)
def test_a_broken_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: bytes | None, template: bytes | None
) -> None:
    files = [tmp_path / "tokenizer.json", tmp_path / "template.jinja"]
    if tokenizer is not None:
        files[0].write_bytes(tokenizer or tokenizer_json())
    if template is not None:
        files[1].write_bytes(template)
    with pytest.raises(InvalidInput) as refused:
        open_renderer(files[0], None if template is None else files[1])
    assert str(files[template is not None]) in str(refused.value)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    files[0].write_bytes(tokenizer_json())
    with pytest.raises(ExtraMissing, match=r"penstock\[tokenizers\]"):
        open_renderer(files[0])


# Properties

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["user", "model", "call", "tool"]), TEXT), max_size=8)


@settings(max_examples=40)
@given(STEPS, st.sampled_from(["own", "plain", "forgetful"]))
def test_exactly_what_the_model_wrote_is_trained(
    renderers: dict[str, Renderer], steps: list[tuple[str, str]], name: str
) -> None:
    talk = Talk().user("go")
    expected = []
    for number, (step, text) in enumerate(steps):
        match step:
            case "user":
                talk.user(text)
            case "tool":
                talk.result(None, text)
            case "model":
                talk.model(f"a{text}")
                expected.append(f"a{text}<|im_end|>")
            case "call":
                talk.model(f"c{text}", thinking="hm", calls=[asks(f"t{number}", arguments=text)])
                expected.append(f"c{text}")
    renderer = renderers[name]
    found = renderer.render(talk.conversation())
    assert found.problems == []
    pieces = [piece for branch in found.branches for piece in written(branch)]
    assert len(pieces) == len(expected)
    for piece, text in zip(pieces, expected, strict=True):
        assert text in piece
        assert piece.endswith("<|im_end|>")
        assert piece.count("<|im_end|>") == 1
        assert "<|im_start|>" not in piece
    for branch in found.branches:
        again, _, _ = renderer.encode(text_of(branch))
        assert again.tolist() == branch.input_ids.tolist()
        assert branch.loss_mask.sum() == branch.n_trainable
