"""Claude Code's and Codex's protocols before an own engine, at once."""

from pathlib import Path

from tests.support.proxy.recorded_calls import prove_exact, recorded_calls, wrong_calls
from tests.support.recording_proxy import ask, recording_proxy
from tests.support.servers.engine_process import engine_process


def test_tokens_are_the_engine_s_across_a_restart_and_compactions(tmp_path: Path) -> None:
    prove_exact(tmp_path, count=8, turns=3, restarts=1)


def test_an_engine_that_starts_after_the_proxy_is_known(tmp_path: Path) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    with engine_process(tmp_path) as engine, recording_proxy(engine.url, tmp_path / "s") as proxy:
        engine.kill()
        assert ask(proxy.url, "/s/late/v1/messages", body)[0] == 502
        engine.restart()
        assert ask(proxy.url, "/s/late/v1/messages", body)[0] == 200
        assert wrong_calls(recorded_calls(proxy, 1), engine) == []
