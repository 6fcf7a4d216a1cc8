"""The tokens that engines reported, and their texts by the operator's tokenizers."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.toml_document import read_bounded
from penstock_jobs.sessions.reading import EventRecord

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FILE_BYTES_MAX = 64 * 1024 * 1024
_OPEN_MAX = 4
#: A space, as tokenizers without bytes write it.
_SPACE = "\u2581"
_UNKNOWN = "\ufffd"


class TokenTexts:
    def __init__(self, named: str) -> None:
        pairs = [pair.partition("=") for pair in named.split(",") if pair.strip()]
        self._files = {name.strip(): Path(file.strip()) for name, _, file in pairs}

    def of(self, tokenizer: str, ids: Sequence[int]) -> tuple[list[str], str]:
        """The text of each id, or the reason why there are none. A call without a tokenizer's name
        gets the only one that is known."""
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
    from penstock_jobs.shards.rows.rendered_branches import open_tokenizer

    what = f"The tokenizer {file}"
    return open_tokenizer(read_bounded(file, _FILE_BYTES_MAX, what), str(file))


def _text(tokenizer: "Tokenizer", token: int) -> str:
    """The text of a token, or its name in the tokenizer for a part of a character."""
    name = tokenizer.id_to_token(token) if token >= 0 else None
    if name is None:
        return ""
    text = str(tokenizer.decode([token], skip_special_tokens=False))
    if name.startswith(_SPACE) and not text.startswith(" "):
        text = " " + text
    return name if _UNKNOWN in text or not text else text


_SHOWN_MAX = 2_000
#: Log-probabilities below these steps are increasing surprises.
_STEPS = (-0.05, -0.5, -1.5, -3.0)


class ShownToken(msgspec.Struct, frozen=True):
    id: int
    logprob: float | None
    version: str | None
    #: From 0, if the policy was sure of the token, to 4.
    surprise: int
    text: str = ""


class TokenCall(msgspec.Struct, frozen=True):
    name: str
    checkpoint: str
    prompt: int
    completion: int
    tokens: list[ShownToken]
    left_out: int
    versions: list[str]
    mean_logprob: float | None
    tokenizer: str
    problem: str = ""


class _Tokens(msgspec.Struct):
    prompt_ids: list[int] | None = None
    completion_ids: list[int] | None = None
    logprobs: list[float] | None = None
    tokenizer: str | None = None
    policy_version_runs: list[tuple[int, Any]] | None = None
    redacted: bool = False


class _CallTokens(msgspec.Struct):
    call_id: str | None = None
    tokens: _Tokens | None = None


def token_calls(events: Iterable[EventRecord], texts: TokenTexts) -> list[TokenCall]:
    calls = []
    for event in events:
        if event.type != "model_call":
            continue
        name = event.event_id or ""
        try:
            call = msgspec.json.decode(event.payload, type=_CallTokens)
        except (msgspec.MsgspecError, RecursionError) as error:
            problem = f"its tokens cannot be read: {error}"
            calls.append(TokenCall(name, "", 0, 0, [], 0, [], None, "", problem))
            continue
        if call.tokens is not None:
            calls.append(_call_of(call.call_id or name, event.checkpoint or "", call.tokens, texts))
    return calls


def _call_of(name: str, checkpoint: str, tokens: _Tokens, texts: TokenTexts) -> TokenCall:
    ids, logprobs = tokens.completion_ids or [], tokens.logprobs or []
    problem = "redaction removed the ids" if tokens.redacted else ""
    if logprobs and len(logprobs) != len(ids):
        problem = f"{len(ids)} ids have {len(logprobs)} log-probabilities"
        logprobs = []
    runs = sorted(tokens.policy_version_runs or [], key=lambda run: run[0])
    shown = []
    known, lacking = texts.of(tokens.tokenizer or "", ids[:_SHOWN_MAX])
    for at, token in enumerate(ids[:_SHOWN_MAX]):
        logprob = logprobs[at] if logprobs else None
        version = next((str(run[1]) for run in reversed(runs) if run[0] <= at), None)
        text = known[at] if known else ""
        surprise = 0 if logprob is None else sum(logprob < step for step in _STEPS)
        shown.append(ShownToken(token, logprob, version, surprise, text))
    return TokenCall(
        name=name,
        checkpoint=checkpoint,
        prompt=len(tokens.prompt_ids or []),
        completion=len(ids),
        tokens=shown,
        left_out=len(ids) - len(shown),
        versions=list(dict.fromkeys(str(version) for _, version in runs)),
        mean_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        tokenizer=tokens.tokenizer or "",
        problem=problem or lacking,
    )
