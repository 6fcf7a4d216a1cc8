"""A small tokenizer, and chat templates of several kinds."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

_CORPUS = [
    "def total(values): return sum(values)\n\nRead the file, then run the tests, please.",
    '<think>\nI should look first.\n</think>\n\n{"path": "src/a.py"} ok ok ok',
    "a::b a::b a::b",
] * 3  # fmt: skip

#: As many open models have it, without `generation` blocks.
PLAIN = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}
    {{- '<think>' + message.reasoning_content + '</think>' }}
{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

#: Thoughts before the last question are not shown, as several models have it.
FORGETFUL = """\
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.reasoning_content and loop.index0 > ns.last %}
        {{- '<think>' + message.reasoning_content + '</think>' }}
    {%- endif %}
    {{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


@cache
def tokenizer_json() -> bytes:
    """Byte-level pairs; with what tokenizers bring along for other uses, and must not matter."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(_CORPUS, trainer)
    made.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    end = made.token_to_id("<|im_end|>")
    made.post_processor = processors.TemplateProcessing(
        single="$A <|im_end|>", special_tokens=[("<|im_end|>", end)]
    )
    made.enable_truncation(8)
    made.enable_padding(length=8)
    return made.to_str().encode()
