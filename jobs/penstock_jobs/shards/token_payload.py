"""What an inference engine reports of a model call: ids, log-probabilities, versions, experts.

It is checked here, once. Tokens that do not hold together are a named problem of that call; other
calls of the session are not affected.
"""

import binascii
from array import array
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]
Wide = NDArray[np.int64]
#: (start, version), the starts ascending.
Runs = tuple[tuple[int, int], ...]

_INT32_END = 2**31
#: Bytes of a list that has a comma, if it has two ids.
_COMMA_WITHIN = 32
_NONE = np.empty(0, dtype=np.int64)
_DTYPES = ("uint8", "int16", "uint16", "int32")


class _TokensPayload(Struct, gc=False):
    prompt_ids: Raw | UnsetType = UNSET
    completion_ids: Raw | UnsetType = UNSET
    logprobs: list[float] | None = None
    tokenizer: str | None = None
    template: str | None = None
    policy_version_runs: list[tuple[int, Any]] | None = None
    routed_experts: Raw | UnsetType = UNSET


class _RoutesPayload(Struct, gc=False):
    data: str
    shape: list[int]
    dtype: str


_decoder = msgspec.json.Decoder(_TokensPayload | None)
_ids_decoder = msgspec.json.Decoder(list[int] | None)
_routes_decoder = msgspec.json.Decoder(_RoutesPayload | None)


@dataclass(frozen=True, slots=True)
class ExpectedTokens:
    """What trained tokens have to be of; none: whatever the engine says."""

    #: The digest of the tokenizer. Only a producer that names its own by digest can contradict.
    tokenizer: str | None = None
    #: Ids from this one on do not exist.
    vocabulary: int | None = None


ANY = ExpectedTokens()


@dataclass(frozen=True, slots=True, eq=False)
class ExpertRoutes:
    """Experts of consecutive tokens, row by row."""

    #: The token that the first row belongs to.
    start: int
    rows: int
    layers: int
    topk: int
    dtype: str
    data: bytes

    @property
    def row_bytes(self) -> int:
        return self.layers * self.topk * np.dtype(self.dtype).itemsize

    def part(self, start: int, end: int) -> bytes:
        """Of the tokens from `start` up to `end`."""
        size = self.row_bytes
        return self.data[(start - self.start) * size : (end - self.start) * size]


@dataclass(frozen=True, slots=True, eq=False)
class EngineTokens:
    prompt: Ids
    completion: Ids
    logprobs: Floats | None
    #: Starts count from the first token of the completion. None: not said, or no numbers.
    runs: Runs | None
    routes: ExpertRoutes | None
    tokenizer: str | None
    template: str | None
    #: What is wrong with a part that tokens can be trained without.
    lacks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


class PromptMemory:
    """The ids of the call before, as they were written. A prompt is nearly always what was there
    before and a little more: of a session, only that little is decoded, not all of it again with
    each call."""

    def __init__(self) -> None:
        self._text = b""
        self._ids = _NONE

    def decode(self, prompt: bytes, completion: bytes) -> tuple[Wide, Wide]:
        """Raises msgspec's errors for what is no list of whole numbers, and OverflowError."""
        written, asked = _decoded(completion), self._prompt(prompt)
        if len(asked) and len(written):
            self._text = prompt[:-1] + _comma(prompt) + completion[1:-1]
            self._ids = np.concatenate([asked, written])
        return asked, written

    def _prompt(self, prompt: bytes) -> Wide:
        size = len(self._text)
        behind = prompt[size : size + 1]
        if not size or behind not in (b",", b"]") or not prompt.startswith(self._text):
            return _decoded(prompt)
        more = _decoded(b"[" + prompt[size:].removeprefix(b","))
        if behind == b"," and not len(more):  # a comma with nothing behind it: no list
            return _decoded(prompt)
        return np.concatenate([self._ids, more])


def _comma(text: bytes) -> bytes:
    """As this producer writes lists."""
    return b", " if b", " in text[:_COMMA_WITHIN] else b","


def _text(said: Raw | UnsetType) -> bytes:
    return b"null" if said is UNSET else bytes(said)


def _decoded(text: bytes) -> Wide:
    return np.frombuffer(array("q", _ids_decoder.decode(text) or ()), dtype=np.int64)


def read_tokens(
    raw: Raw | None, expected: ExpectedTokens, memory: PromptMemory | None = None
) -> EngineTokens | str | None:
    """None: the call is text alone, as it is where keys are there and their arrays are empty. A
    text names what is wrong with it. `memory` is that of the calls of one session."""
    if raw is None:
        return None
    try:
        said = _decoder.decode(raw)
        if said is None:
            return None
        memory = memory or PromptMemory()
        prompt, completion = memory.decode(_text(said.prompt_ids), _text(said.completion_ids))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "tokens_unreadable"
    except OverflowError:
        return "ids_out_of_range"
    if not len(completion):
        return None
    if not len(prompt):
        return "prompt_ids_missing"
    return _checked(said, (prompt, completion), expected)


def is_digest(name: str) -> bool:
    """A SHA-256, as `Expected.tokenizer` is."""
    return len(name) == 64 and not set(name) - set("0123456789abcdef")


def _checked(
    said: _TokensPayload, ids: tuple[Wide, Wide], expected: ExpectedTokens
) -> EngineTokens | str:
    end = min(expected.vocabulary or _INT32_END, _INT32_END)
    prompt, completion = (_ids(one, end) for one in ids)
    if prompt is None or completion is None:
        return "ids_out_of_range"
    tokenizer = (said.tokenizer or "").removeprefix("sha256:") or None
    if _contradicts(tokenizer, expected.tokenizer):
        return "other_tokenizer"
    logprobs = _logprobs(said.logprobs, len(completion))
    if isinstance(logprobs, str):
        return logprobs
    if not _are_runs(said.policy_version_runs, len(completion)):
        return "version_runs"
    runs, lacks = _runs(said.policy_version_runs)
    if runs is not None and any(one[1] > following[1] for one, following in pairwise(runs)):
        return "version_runs"
    routes = _routes(said.routed_experts, len(prompt), len(completion))
    if isinstance(routes, str):
        lacks, routes = (*lacks, routes), None
    template = (said.template or "").removeprefix("sha256:") or None
    return EngineTokens(
        prompt, completion, logprobs, runs, routes, tokenizer, template, lacks=lacks
    )


def _contradicts(tokenizer: str | None, expected: str | None) -> bool:
    known = expected is not None and tokenizer is not None and is_digest(tokenizer)
    return known and tokenizer != expected


def _ids(values: Wide, end: int) -> Ids | None:
    if len(values) and (values.min() < 0 or values.max() >= end):
        return None
    return values.astype(np.int32)


def _logprobs(said: list[float] | None, length: int) -> Floats | str | None:
    if not said:
        return None
    if len(said) != length:
        return "logprobs_length"
    with np.errstate(over="ignore"):  # what float32 cannot hold is not finite
        values = np.array(said, dtype=np.float64).astype(np.float32)
    if not np.isfinite(values).all():
        return "logprobs_not_finite"
    return "logprobs_positive" if (values > 0).any() else values


def _are_runs(said: list[tuple[int, Any]] | None, length: int) -> bool:
    """They begin at the first token, ascend, and none begins behind the last."""
    if not said:
        return True
    starts = [start for start, _ in said]
    ascending = all(one < following for one, following in pairwise(starts))
    return starts[0] == 0 and ascending and starts[-1] < length


def _runs(said: list[tuple[int, Any]] | None) -> tuple[Runs | None, tuple[str, ...]]:
    found: list[tuple[int, int]] = []
    for start, value in said or ():
        version = _version(value)
        if version is None:
            return None, ("versions_not_numbers",)
        if not found or found[-1][1] != version:
            found.append((start, version))
    return tuple(found) or None, ()


def _version(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value) if len(value) <= 10 else _INT32_END
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _INT32_END else None


def _routes(raw: Raw | UnsetType, prompt: int, completion: int) -> ExpertRoutes | str | None:
    """Rows for all tokens, or those of the completion; the last token may have none, since it was
    never fed to the model."""
    if raw is UNSET:
        return None
    try:
        said = _routes_decoder.decode(raw)
        if said is None:
            return None
        data = binascii.a2b_base64(said.data, strict_mode=True)
    except (msgspec.MsgspecError, ValueError):  # base64's errors are ValueErrors
        return "routes_unreadable"
    if said.dtype not in _DTYPES or len(said.shape) != 3 or min(said.shape) < 1:
        return "routes_unreadable"
    if len(data) != prod(said.shape) * np.dtype(said.dtype).itemsize:
        return "routes_length"
    rows, layers, topk = said.shape
    if not _are_experts(np.frombuffer(data, said.dtype).reshape(-1, topk)):
        return "routes_not_experts"
    length = prompt + completion
    if rows in (length, length - 1):
        return ExpertRoutes(0, rows, layers, topk, said.dtype, data)
    if rows in (completion, completion - 1):
        return ExpertRoutes(prompt, rows, layers, topk, said.dtype, data)
    return "routes_length"


def _are_experts(choices: NDArray[Any]) -> bool:
    """Numbers from 0, none twice for a token and layer: some engines fill rows that they do not
    know with -1 or with zeros."""
    in_order = np.sort(choices, axis=1)
    return bool((in_order[:, 0] >= 0).all() and (in_order[:, 1:] != in_order[:, :-1]).all())
