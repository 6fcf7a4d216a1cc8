"""The texts of token ids, by tokenizers that the operator named."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.toml_document import read_bounded
from penstock_jobs.shards.rendered_branches import open_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FILE_BYTES_MAX = 64 * 1024 * 1024
_OPEN_MAX = 4
#: How tokenizers without bytes write a space.
_SPACE = "\u2581"
_UNKNOWN = "\ufffd"


class TokenTexts:
    """`named` is the setting: NAME=FILE pairs with commas."""

    def __init__(self, named: str) -> None:
        pairs = [pair.partition("=") for pair in named.split(",") if pair.strip()]
        self._files = {name.strip(): Path(file.strip()) for name, _, file in pairs}

    def of(self, tokenizer: str, ids: Sequence[int]) -> tuple[list[str], str]:
        """Of each id its text, and why there are none. Ids of a call that names no tokenizer are of
        the only one that is known."""
        file = self._files.get(tokenizer)
        if file is None and not tokenizer and len(self._files) == 1:
            [file] = self._files.values()
        if file is None:
            return [], ""
        try:
            opened = _opened(file)
        except PenstockError as error:
            return [], str(error)
        return [_text(opened, token) for token in ids], ""


@lru_cache(_OPEN_MAX)
def _opened(file: Path) -> "Tokenizer":
    what = f"The tokenizer {file}"
    return open_tokenizer(read_bounded(file, _FILE_BYTES_MAX, what), str(file))


def _text(tokenizer: "Tokenizer", token: int) -> str:
    """A part of a character has the name that the tokenizer gives it."""
    name = tokenizer.id_to_token(token) if token >= 0 else None
    if name is None:
        return ""
    text = str(tokenizer.decode([token], skip_special_tokens=False))
    if name.startswith(_SPACE) and not text.startswith(" "):
        text = " " + text
    return name if _UNKNOWN in text or not text else text
