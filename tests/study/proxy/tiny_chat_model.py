"""A tiny model with random weights whose tokens are words, for a chat with an engine. Run by
itself, in the environment of the engine:

    python tiny_chat_model.py FOLDER WORDS

With few words it soon says the last one, which ends a turn, and its template writes it too.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

#: Words stand apart, so that an answer that is said again has the tokens that were sampled.
TEMPLATE = """\
{%- for message in messages -%}
{{ {"system": "t1", "user": "t2", "assistant": "t3"}[message.role] }} {{ message.content }} {# -#}
END{# -#}
{%- endfor -%}
{%- if add_generation_prompt %}t3{% endif -%}"""


def main(folder: Path, words_count: int) -> None:
    end = words_count - 1
    torch.set_num_threads(1)
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=words_count, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1024,
        tie_word_embeddings=False, initializer_range=0.6, bos_token_id=None, eos_token_id=end,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"t{at}": at for at in range(words_count)}, unk_token="t0"))
    words.pre_tokenizer = WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"t{end}")
    made.chat_template = TEMPLATE.replace("END", f"t{end} " if words_count < 100 else "")
    made.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
