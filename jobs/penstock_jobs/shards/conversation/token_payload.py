"""Tokens that an engine reports for a model call: ids, log-probabilities, versions, experts.

Inconsistent tokens are a named problem of that call alone.
"""

import binascii
from array import array
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]
Wide = NDArray[np.int64]
#: (start, version), the starts ascending.
Runs = tuple[tuple[int, int], ...]

TOKENS_REDACTED = "tokens_redacted"
INT32_END = 2**31
#: A list of two ids has a comma within this many bytes.
COMMA_WITHIN = 32
_DTYPES = ("uint8", "int16", "uint16", "int32")


class _TokensPayload(Struct, gc=False):
    prompt_ids: Raw = Raw(b"null")
    completion_ids: Raw = Raw(b"null")
    logprobs: list[float] | None = None
    tokenizer: str | None = None
    template: str | None = None
    policy_version_runs: list[tuple[int, Any]] | None = None
    routed_experts: Raw = Raw(b"null")
    #: Redaction removed the ids, since they decode to masked text.
    redacted: bool = False


class _RoutesPayload(Struct, gc=False):
    data: str
    shape: list[int]
    dtype: str


_decoder = msgspec.json.Decoder(_TokensPayload | None)
_ids_decoder = msgspec.json.Decoder(list[int] | None)
_routes_decoder = msgspec.json.Decoder(_RoutesPayload | None)


class BrokenTokens(Exception):
    """Inconsistent tokens. The argument names the problem."""


class ExpectedTokens(msgspec.Struct, frozen=True):
    """Requirements on trained tokens; None accepts whatever the engine says."""

    tokenizer: str | None = None
    #: The number of ids.
    vocabulary: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ExpertRoutes:
    """Experts of consecutive tokens, a row each."""

    #: The token of the first row.
    start: int
    rows: int
    layers: int
    topk: int
    dtype: str
    data: bytes

    @property
    def end(self) -> int:
        return self.start + self.rows

    def part(self, start: int, end: int) -> "ExpertRoutes":
        """Cut from `start` up to `end`."""
        row_bytes = self.layers * self.topk * np.dtype(self.dtype).itemsize
        data = self.data[(start - self.start) * row_bytes : (end - self.start) * row_bytes]
        return replace(self, start=start, rows=end - start, data=data)


@dataclass(frozen=True, slots=True, eq=False)
class EngineTokens:
    prompt: Ids
    completion: Ids
    logprobs: Floats | None
    #: Starts count from the first completion token. None if missing or not numeric.
    runs: Runs | None
    routes: ExpertRoutes | None
    tokenizer: str | None
    template: str | None
    #: Problems of parts that training can do without.
    lacks: tuple[str, ...] = ()


class PromptMemory:
    """The ids of the previous call as text.

    A prompt that begins with them is decoded from there."""

    def __init__(self) -> None:
        self._text = b""
        self._ids = np.empty(0, dtype=np.int64)

    def decode(self, prompt: bytes, completion: bytes) -> tuple[Wide, Wide]:
        """Decode both lists. Raises OverflowError, and msgspec's errors for other content."""
        written, read = _decoded(completion), self._prompt(prompt)
        if len(read) and len(written):
            # In the producer's own format of lists.
            comma = b", " if b", " in prompt[:COMMA_WITHIN] else b","
            self._text = prompt[:-1] + comma + completion[1:-1]
            self._ids = np.concatenate([read, written])
        return read, written

    def _prompt(self, prompt: bytes) -> Wide:
        size = len(self._text)
        behind = prompt[size : size + 1]
        if not size or behind not in (b",", b"]") or not prompt.startswith(self._text):
            return _decoded(prompt)
        more = _decoded(b"[" + prompt[size:].removeprefix(b","))
        if behind == b"," and not len(more):  # a trailing comma: not a list
            return _decoded(prompt)
        return np.concatenate([self._ids, more])


def _decoded(text: bytes) -> Wide:
    return np.frombuffer(array("q", _ids_decoder.decode(text) or ()), dtype=np.int64)


def read_tokens(
    raw: Raw, expected: ExpectedTokens, memory: PromptMemory
) -> EngineTokens | str | None:
    """Read a call's tokens; None without any. A text names a problem.

    `memory` is shared by the calls of a session."""
    try:
        payload = _decoder.decode(raw)
        if payload is None:
            return None
        texts = (bytes(payload.prompt_ids), bytes(payload.completion_ids))
        prompt, completion = memory.decode(*texts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "tokens_unreadable"
    except OverflowError:
        return "ids_out_of_range"
    if not len(completion):
        return TOKENS_REDACTED if payload.redacted else None
    if not len(prompt):
        return "prompt_ids_missing"
    tokenizer = (payload.tokenizer or "").removeprefix("sha256:")
    if is_digest(tokenizer) and expected.tokenizer not in (None, tokenizer):
        return "other_tokenizer"  # more telling than its ids
    end = min(expected.vocabulary or INT32_END, INT32_END)
    if any(ids.min() < 0 or ids.max() >= end for ids in (prompt, completion)):
        return "ids_out_of_range"
    routes = None
    try:
        logprobs = _logprobs(payload.logprobs, len(completion))
        runs = version_runs(payload.policy_version_runs or [], len(completion))
    except BrokenTokens as broken:
        return str(broken)
    lacks = ["versions_not_numbers"] if payload.policy_version_runs and runs is None else []
    try:
        routes = _routes(payload.routed_experts, len(prompt), len(completion))
    except BrokenTokens as broken:
        lacks.append(str(broken))
    return EngineTokens(
        prompt.astype(np.int32),
        completion.astype(np.int32),
        logprobs,
        runs,
        routes,
        tokenizer=tokenizer or None,
        template=(payload.template or "").removeprefix("sha256:") or None,
        lacks=tuple(lacks),
    )


def is_digest(name: str) -> bool:
    return len(name) == 64 and not set(name) - set("0123456789abcdef")


def _logprobs(reported: list[float] | None, length: int) -> Floats | None:
    if not reported:
        return None
    if len(reported) != length:
        raise BrokenTokens("logprobs_length")
    with np.errstate(over="ignore"):  # overflows become infinite
        values = np.array(reported, dtype=np.float64).astype(np.float32)
    if not np.isfinite(values).all():
        raise BrokenTokens("logprobs_not_finite")
    if (values > 0).any():
        raise BrokenTokens("logprobs_positive")
    return values


def version_runs(reported: list[tuple[int, Any]], length: int) -> Runs | None:
    """Check that runs start at the first token and ascend, and versions never decrease.

    None if a version is not a number."""
    starts = [start for start, _ in reported]
    ascending = all(start < later for start, later in pairwise([*starts, length]))
    if reported and (starts[0] != 0 or not ascending):
        raise BrokenTokens("version_runs")
    runs: list[tuple[int, int]] = []
    for start, value in reported:
        version = _version(value)
        if version is None:
            return None
        if not runs or runs[-1][1] != version:
            runs.append((start, version))
    if any(earlier[1] > later[1] for earlier, later in pairwise(runs)):
        raise BrokenTokens("version_runs")
    return tuple(runs) or None


def _version(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value) if len(value) <= 10 else INT32_END
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < INT32_END else None


def _routes(raw: Raw, prompt: int, completion: int) -> ExpertRoutes | None:
    """Read rows for all tokens or for the completion.

    The last token, which was never fed to the model, may have none."""
    try:
        payload = _routes_decoder.decode(raw)
        if payload is None:
            return None
        data = binascii.a2b_base64(payload.data, strict_mode=True)
    except (msgspec.MsgspecError, ValueError) as error:  # base64's errors are ValueErrors
        raise BrokenTokens("routes_unreadable") from error
    shape, dtype = payload.shape, payload.dtype
    if dtype not in _DTYPES or len(shape) != 3 or min(shape) < 1:
        raise BrokenTokens("routes_unreadable")
    if len(data) != prod(shape) * np.dtype(dtype).itemsize:
        raise BrokenTokens("routes_length")
    rows, layers, topk = shape
    # Some engines fill unknown rows with -1 or zeros.
    choices = np.sort(np.frombuffer(data, dtype).reshape(-1, topk), axis=1)
    if (choices[:, 0] < 0).any() or (choices[:, 1:] == choices[:, :-1]).any():
        raise BrokenTokens("routes_not_experts")
    for start, length in ((0, prompt + completion), (prompt, completion)):
        if rows in (length, length - 1):
            return ExpertRoutes(start, rows, layers, topk, dtype, data)
    raise BrokenTokens("routes_length")
