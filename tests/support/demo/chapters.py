"""Chapters as tests want them."""

from penstock_jobs.demo.story import ACTS, Chapter, UserReaction


def chapter(number: int, **facts: object) -> Chapter:
    known: dict[str, object] = {
        "number": number,
        "act": ACTS[0],
        "parent": f"demo-{number - 1:04}",
        "sessions": 220,
        "events": 3_000,
        "measured": UserReaction(0.8, 0.4),
        "known": UserReaction(0.75, 0.5),
        "checkpoint": f"demo-{number:04}",
        "score": 0.5,
        "score_before": 0.4,
        "verdict": "PASS",
        "outcome": "promoted",
        "why": "",
        "stages": (("rewards", 1.0), ("bench", 3.0)),
    }
    return Chapter(**(known | facts))  # type: ignore[arg-type]
