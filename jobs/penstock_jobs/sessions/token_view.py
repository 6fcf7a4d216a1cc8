"""The tokens of model calls, as the engine reported them: ids, log-probabilities, policy versions,
and which of them a trainer would learn from."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock_jobs.sessions.session_record import EventRecord
from penstock_jobs.sessions.token_texts import TokenTexts

#: Of one call on a page.
_SHOWN_MAX = 2_000
#: A token that the policy gave less than this is a surprise, in steps; the first is none.
_STEPS = (-0.05, -0.5, -1.5, -3.0)


@dataclass(frozen=True)
class ShownToken:
    id: int
    logprob: float | None
    #: Of the policy that drew it.
    version: str | None
    #: 0 where the policy was sure of it, up to 4.
    surprise: int
    #: Where a tokenizer is known.
    text: str = ""


@dataclass(frozen=True)
class TokenCall:
    name: str
    checkpoint: str
    prompt: int
    completion: int
    #: Those that were drawn, and so have a mask of 1 in a shard; the prompt has 0.
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
    """Of the model calls among them that have tokens."""
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
    problem = "redaction took the ids out" if tokens.redacted else ""
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
        shown.append(ShownToken(token, logprob, version, _surprise(logprob), text))
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


def _surprise(logprob: float | None) -> int:
    return 0 if logprob is None else sum(logprob < step for step in _STEPS)
