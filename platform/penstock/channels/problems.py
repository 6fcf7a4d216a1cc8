"""Refusals of channels that have fields of their own."""

from typing import Any

from penstock.http.problems import Problem


class ConflictProblem(Problem, kw_only=True):
    """Where a compare-and-swap found something else: which checkpoint, at which version."""

    expected: str | None = None
    found: str | None = None
    version: int | None = None


class GateProblem(Problem, kw_only=True):
    """Where the gate did not say PASS: its document, whole."""

    outcome: str | None = None
    verdict: dict[str, Any] | None = None
    verdict_id: str | None = None
