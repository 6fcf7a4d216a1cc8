"""length_penalty: what an answer cost, so that it is short where that is easy.

Measures: six lengths of each turn, weighted into one x, and bent so that the first tokens weigh
more than the last: an easy task is answered briefly, and a hard one may take its time.

Formula, per turn, with k > 0 and q ≥ 0:

    x = Σ weight · length        C(x) = ((1 + k·x)^(1−q) − 1) / (k·(1−q));  q = 1: ln(1 + k·x) / k

C(0) = 0 and C'(0) = 1; it falls away for q > 0, and never exceeds 1 / (k·(q−1)) for q > 1. The
value is −C(x). A session is the mean of its turns. The six lengths are rewards of their own beside
it, as they are, by the names `length_thinking`, `length_calling`, `length_output`, `length_final`
(tokens), `length_calls` and `length_rounds` (tool calls, model calls).

Range: 0 and down.

pending: never. censored: `no_usage`, a model call did not say how many tokens it took, or said what
cannot be: over 1e9, or more thinking than all. Unknown is not none. Turns without a model call have
no row.

To game it: stop early, or ask back instead of working. It has to stand beside what rewards work.
Tokens of tool calls are all that a model call with tool calls completed but its thinking; those of
tool output are characters / `output_chars_per_token`, since nobody counts them.
"""

from dataclasses import dataclass
from math import log
from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.turn_scores import TurnScore, score_turns, turn_facts


@dataclass(frozen=True)
class LengthParameters:
    """`k` is per unit of x. The weights make one length of six."""

    k: float = 1e-3
    q: float = 0.5
    weight_thinking: float = 1.0
    weight_calling: float = 1.0
    weight_output: float = 0.1
    weight_final: float = 1.0
    weight_calls: float = 50.0
    weight_rounds: float = 50.0
    output_chars_per_token: float = 4.0

    def __post_init__(self) -> None:
        if self.k <= 0 or self.q < 0 or self.output_chars_per_token <= 0:
            raise ValueError("k and output_chars_per_token have to be above 0, q at least 0")


LENGTHS = ("thinking", "calling", "output", "final", "calls", "rounds")


def length_penalty(bucket: Bucket, parameters: LengthParameters) -> pa.Table:
    """The rows of this reward and of its six lengths: module docstring."""

    measured = {_key(turn): _lengths(turn, parameters) for turn in turn_facts(bucket)}

    def penalty(turn: dict[str, Any]) -> TurnScore | None:
        lengths = measured[_key(turn)]
        if lengths is None:
            return None
        if turn["without_usage"]:
            return TurnScore(None, "no_usage")
        x = sum(getattr(parameters, f"weight_{name}") * lengths[name] for name in LENGTHS)
        return TurnScore(0.0 - bent(x, parameters.k, parameters.q))

    tables = [score_turns("length_penalty", bucket, penalty)]
    for name in LENGTHS:

        def length(turn: dict[str, Any], name: str = name) -> TurnScore | None:
            lengths = measured[_key(turn)]
            if lengths is None:
                return None
            if turn["without_usage"] and name in ("thinking", "calling", "final"):
                return TurnScore(None, "no_usage")
            return TurnScore(lengths[name])

        tables.append(score_turns(f"length_{name}", bucket, length))
    return pa.concat_tables(tables)


def bent(x: float, k: float, q: float) -> float:
    """C(x)."""
    if abs(q - 1) < 1e-9:
        return log(1 + k * x) / k
    return float(((1 + k * x) ** (1 - q) - 1) / (k * (1 - q)))


def _key(turn: dict[str, Any]) -> tuple[str, int]:
    return turn["session_id"], turn["turn"]


def _lengths(turn: dict[str, Any], parameters: LengthParameters) -> dict[str, float] | None:
    if not turn["model_calls"]:
        return None
    return {
        "thinking": float(turn["thinking_tokens"] or 0),
        "calling": float(turn["calling_tokens"] or 0),
        "output": turn["output_chars"] / parameters.output_chars_per_token,
        "final": float(turn["final_tokens"] or 0),
        "calls": float(turn["tool_calls"]),
        "rounds": float(turn["model_calls"]),
    }


REWARD = Reward("length_penalty", 1, length_penalty, LengthParameters)
