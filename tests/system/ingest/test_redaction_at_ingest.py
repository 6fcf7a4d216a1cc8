import json
import random
from contextlib import closing
from pathlib import Path

from penstock_jobs.simulator.demo.server import running_server
from tests.room.ingest.test_redaction_at_ingest import everything_on_disk, planted_events
from tests.support.lakes import hand_lake
from tests.support.planted_secrets import ENCODINGS, SHAPED
from tests.support.waiting import eventually


def test_what_was_planted_is_in_nothing_that_a_service_says_or_leaves(tmp_path: Path) -> None:
    """Not in answers, metrics, log lines, the audit or files, also where the process was killed."""
    planted: list[str] = []
    said: list[bytes] = []
    data, log_file = tmp_path / "data", tmp_path / "log"
    settings = {"PENSTOCK_FLUSH_SECONDS_MAX": "0.1"}
    with (
        log_file.open("wb") as log,
        running_server(data, settings=settings, log=log) as server,
        closing(server.client()) as client,
    ):
        for number, (name, encode) in enumerate(ENCODINGS.items()):
            dice = random.Random(f"{name} at a service")
            secret = SHAPED[number % len(SHAPED)](dice)
            hidden = encode(secret, dice)
            planted += [secret, hidden, json.dumps(hidden)[1:-1], secret[-12:]]
            lines = [json.dumps(event) for event in planted_events(secret, hidden, number)]
            body = "\n".join([*lines, f"no JSON {secret}", f'{{"cut": "{secret}'])
            said.append(client.post("/v1/events", body.encode()).body)
        stored = b'events_stored_total{tenant="default"}'
        eventually(lambda: stored in client.get("/metrics").body)
        said += [
            client.get(path).body
            for path in ("/metrics", "/readyz", "/v1/ledger", "/v1/sessions", "/v1/rejected")
        ]
        server.kill()
    said.append(log_file.read_bytes())
    with hand_lake(data) as lake:
        on_disk = everything_on_disk(lake, data)
    everything = on_disk + "\n".join(json.dumps(part.decode("latin-1")) for part in said)
    assert [text for text in planted if text in everything] == []
    assert b"penstock_redactions_total" in b"".join(said)
    assert "[SECRET:" in on_disk
