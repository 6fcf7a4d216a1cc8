"""Claude Code's and Codex's protocols before an own engine, at once."""

from pathlib import Path

from tests.support.proxy.recorded_calls import prove_exact


def test_tokens_are_the_engine_s_across_a_restart_and_compactions(tmp_path: Path) -> None:
    prove_exact(tmp_path, count=8, turns=3, restarts=1)
