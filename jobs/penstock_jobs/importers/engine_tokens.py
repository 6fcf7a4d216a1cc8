"""Tokens of a model call as formats keep them: what is trusted, and what is text only.

Keys of tokens whose lists are empty, or null, say nothing: such a call is text. Log-probabilities
that were rounded, as some stores do to four decimals, are kept and marked: a ratio of
probabilities that is made of them is off."""

from typing import Any

from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.session_draft import present

_DECIMALS = 4
#: Fewer are rounded by chance.
_ROUNDED_MIN = 8


def engine_tokens(
    prompt_ids: object, completion_ids: object, logprobs: object, notes: Notes, **facts: Any
) -> dict[str, Any] | None:
    """The `tokens` of a model call, or None where there are none."""
    prompt, completion = _ids(prompt_ids), _ids(completion_ids)
    if not completion:
        return None
    tokens: dict[str, Any] = {"prompt_ids": prompt or None, "completion_ids": completion}
    probabilities = logprobs if isinstance(logprobs, list) else []
    if probabilities and not _are_numbers(probabilities):
        notes.skip("log-probabilities that are no numbers")
    elif probabilities and len(probabilities) != len(completion):
        counts = f"{len(probabilities)} for {len(completion)} tokens"
        notes.skip("log-probabilities that do not fit their tokens", counts)
    elif probabilities:
        tokens["logprobs"] = [float(each) for each in probabilities]
        if are_rounded(tokens["logprobs"]):
            tokens["logprobs_decimals"] = _DECIMALS
    return present(tokens | facts)


def are_rounded(logprobs: list[float]) -> bool:
    told = [each for each in logprobs if each]
    return len(told) >= _ROUNDED_MIN and all(round(each, _DECIMALS) == each for each in told)


def _ids(value: object) -> list[int]:
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        return []
    return value


def _are_numbers(values: list[Any]) -> bool:
    return all(type(each) in (int, float) and each - each == 0 for each in values)
