"""Refusals of channels that have fields of their own."""

from typing import Any

from penstock.http.problems import Problem


class ConflictProblem(Problem, kw_only=True):
    """A compare-and-swap found something else: which checkpoint, at which version."""

    expected: str | None
    found: str | None
    version: int


class GateProblem(Problem, kw_only=True):
    """The gate did not say PASS: its document, whole."""

    outcome: str
    verdict: dict[str, Any]
    verdict_id: str
