"""A thousand calls by Claude Code's and Codex's protocols before an own engine."""

from pathlib import Path

from tests.support.proxy.recorded_calls import prove_exact


def test_no_token_of_a_thousand_calls_is_wrong(tmp_path: Path) -> None:
    prove_exact(tmp_path, count=20, turns=24, restarts=5)
