"""What a benchmark scores of a simulated policy: the mean over tasks and styles."""

import math
from collections.abc import Mapping

from penstock_jobs.simulator.policy import RISKY_SHARE, STYLES, Policy, Style, Task


def worth_of(policy: Policy) -> float:
    shares: Mapping[Task, float] = {"clear": 1 - RISKY_SHARE, "risky": RISKY_SHARE}
    return math.fsum(
        share * probability * style.worth(task)
        for task, share in shares.items()
        for style, probability in zip(STYLES, policy.probabilities(task), strict=True)
    )


def style_worth(style: Style) -> float:
    """Of a policy with this style alone, whose quality is never below 0."""
    shares: Mapping[Task, float] = {"clear": 1 - RISKY_SHARE, "risky": RISKY_SHARE}
    return math.fsum(share * style.worth(task) for task, share in shares.items())
