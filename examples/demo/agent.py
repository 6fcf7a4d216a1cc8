"""An agent whose model is a simulated policy: it samples a style, and works out sums in that style.

python3 agent.py MODELS    where the weights of CHECKPOINT are MODELS/**/CHECKPOINT.json
"""

import json
import math
import os
import random
import sys
from pathlib import Path

#: How many of the sums each style gets right, where the task is clear and where it is risky, and
#: how many of them it looks at: as the simulator has it of edits (bench/pages/simulator.md).
STYLES = {
    "careful": (0.84, 0.62, 1.0),
    "plain": (0.64, 0.38, 1.0),
    "hasty": (0.36, 0.12, 1.0),
    "ask": (0.0, 0.0, 0.0),
    "comments": (0.42, 0.18, 1.0),
    "tiny": (0.93, 0.89, 0.25),
    "broken": (0.60, 0.10, 1.0),
}
BROKEN_CALLS = {"careful": 0.02, "plain": 0.04, "hasty": 0.06, "broken": 0.85}


def sample(logits: dict[str, float], draw: float) -> str:
    highest = max(logits.values())
    weights = {name: math.exp(value - highest) for name, value in logits.items()}
    draw *= sum(weights.values())
    for name, weight in weights.items():
        draw -= weight
        if draw < 0:
            return name
    return next(iter(weights))


def solve(line: str, *, right: bool) -> str:
    left, sign, other = line.split()[:3]
    results = {
        "+": int(left) + int(other),
        "-": int(left) - int(other),
        "*": int(left) * int(other),
    }
    return f"{left} {sign} {other} = {results[sign] + (not right)}"


def main() -> None:
    told = os.environ
    models, task = Path(sys.argv[1]), told["PENSTOCK_TASK"]
    weights = next(models.rglob(f"{told['PENSTOCK_CHECKPOINT']}.json"))
    # The same luck for every checkpoint: what differs between two is what they learned.
    dice = random.Random(f"{told['PENSTOCK_SEED']} {task} {told['PENSTOCK_ATTEMPT']}")
    kind = task.partition("-")[0]
    style = sample(json.loads(weights.read_text())["logits"][kind], dice.random())

    broken = dice.random() < BROKEN_CALLS.get(style, 0.02)
    lines = Path("sums.txt").read_text().splitlines()
    draws = [dice.random() for _ in lines]
    quality = STYLES[style][kind == "risky"]
    looked_at = 0 if broken else round(STYLES[style][2] * len(lines))
    for at in range(looked_at):
        lines[at] = solve(lines[at], right=draws[at] < quality)
    if style == "comments" and not broken:
        lines = [one for line in lines for one in (f"# {line}: let us think", line)]
    if looked_at:
        Path("sums.txt").write_text("\n".join(lines) + "\n")

    report = {
        "completion_tokens": 20 + 8 * looked_at * (3 if style == "comments" else 1),
        "steps": 1,
        "tool_calls": int(style != "ask"),
        "invalid_tool_calls": int(broken and style != "ask"),
        "asked": style == "ask",
        "answer": "Should all of them be worked out?" if style == "ask" else "",
    }
    Path(told["PENSTOCK_REPORT"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
