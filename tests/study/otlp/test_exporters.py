"""Real libraries export a real agent's conversation to a running service: each span is one event,
what was said is there once.

It runs where EXPORTERS_PYTHON names the Python of an environment with the libraries, as
`make exporters` does."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.study.otlp.exporter_agents import AGENTS, ASKED, GAVE, SYSTEM, THANKED
from tests.support.servers.scripted_model import SAID, scripted_model

PYTHON = os.environ.get("EXPORTERS_PYTHON")
# In CI too, where there is no such environment.
pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="EXPORTERS_PYTHON is not set: `make exporters`")
]
PROGRAM = Path(__file__).with_name("exporter_agents.py")

#: Steps beside the three calls and the result, and spans of none.
STEPS = {
    "openinference_anthropic": 3,  # the client library's own spans
    "openinference_agents": 10,
    "openllmetry_anthropic": 3,
    "opentelemetry_openai": 3,
    "pydantic_ai": 2,
    "strands": 5,
}


@pytest.fixture(scope="module")
def service(start: Callable[..., Any]) -> Iterator[Any]:
    with start() as running:
        yield running


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with scripted_model() as url:
        yield url


def converted(service: Any, outcome: str) -> float:
    names = (f'otlp_records_total{{outcome="{outcome}",signal="{signal}"}}'
             for signal in ("spans", "log records"))  # fmt: skip
    return sum(float(service.metric(name)) for name in names)


@pytest.mark.parametrize("name", AGENTS)
def test_what_an_exporter_sends_is_stored_once(name: str, service: Any, model: str) -> None:
    before = {kind: converted(service, kind) for kind in ("converted", "rejected")}
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": service.server.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{service.keys['ingest']}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": name,
    }
    done = subprocess.run(
        [str(PYTHON), str(PROGRAM), name, model],
        env=os.environ | variables, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sql = f"select type, payload from events where source = 'otlp:{name}' order by ts"
    rows = service.query(sql)
    kinds = Counter(row["type"] for row in rows)
    del kinds["session_start"]
    assert kinds["x_span"] == STEPS.get(name, 0)
    del kinds["x_span"]
    assert kinds == {"user_message": 2, "model_call": 3, "tool_result": 1}, done.stderr
    assert converted(service, "rejected") == before["rejected"]
    assert converted(service, "converted") > before["converted"]

    said = [_payload(row)["text"] for row in rows if row["type"] == "user_message"]
    assert said == [ASKED, THANKED]
    calls = [_payload(row) for row in rows if row["type"] == "model_call"]
    assert [call.get("text") or None for call in calls] == [None, SAID, SAID]
    assert [call["name"] for call in calls[0]["tool_calls"]] == ["ls"]
    [result] = [_payload(row) for row in rows if row["type"] == "tool_result"]
    assert (result["call_id"], result["output"]) == (calls[0]["tool_calls"][0]["id"], GAVE)
    told = [_payload(row) for row in rows if row["type"] in ("model_call", "session_start")]
    if name != "openinference_agents":  # which leaves it out
        assert SYSTEM in [each.get("system") for each in told]


def _payload(row: dict[str, Any]) -> dict[str, Any]:
    held = row["payload"]
    return json.loads(held) if isinstance(held, str) else dict(held)
