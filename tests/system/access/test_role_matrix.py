"""Who may ask what: every route against every role, and which commands a key can be used for. A new
route or command fails here until it has a line."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from penstock.access import ROLES
from penstock.access.keys import create_key
from penstock.backends.http.client import HttpAnswer, ServiceClient
from penstock.core.settings import load_settings
from penstock.doors import cli
from penstock.doors.server.app import ROUTES
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import Server, running_server

EVERYBODY = "everybody"
#: Beside an admin's key. `everybody` needs no key.
OPEN_TO = {
    "GET /healthz": EVERYBODY,
    "GET /readyz": EVERYBODY,
    "GET /docs": EVERYBODY,
    "GET /metrics": "",
    "POST /v1/events": "ingest",
    "POST /v1/traces": "ingest",
    "POST /v1/logs": "ingest",
    "POST /v1/metrics": "ingest",
    "POST /v1/query": "read",
    "GET /v1/audit": "",
    "GET /v1/lake/health": "",
    "GET /v1/audit/verify": "",
    "GET /v1/channels": "read promote",
    "GET /v1/channels/{name}": "read serve promote",
    "GET /v1/channels/{name}/assign": "read serve",
    "GET /v1/channels/{name}/audit": "read promote",
    "GET /v1/channels/{name}/canary": "read promote",
    "GET /v1/channels/{name}/hindsight": "read promote",
    "GET /v1/channels/{name}/history": "read promote",
    "GET /v1/channels/{name}/policy": "read promote",
    "POST /v1/channels/{name}/policy": "",
    "POST /v1/channels/{name}/promote": "promote",
    "POST /v1/channels/{name}/approve": "promote",
    "POST /v1/channels/{name}/release": "promote",
    "GET /v1/channels/{name}/replicas": "read serve promote",
    "POST /v1/channels/{name}/replicas": "serve",
    "POST /v1/channels/{name}/rollback": "promote",
    "GET /v1/channels/{name}/verdict": "read promote",
    "GET /v1/checkpoints": "read promote",
    "POST /v1/checkpoints": "train promote",
    "GET /v1/checkpoints/{name}": "read serve promote",
    "GET /v1/checkpoints/{name}/lineage": "read promote",
    "GET /v1/checkpoints/{name}/moves": "read promote",
    "GET /v1/checkpoints/{name}/proof": "read",
    "POST /v1/checkpoints/{name}/withdraw": "promote",
    "GET /v1/consents": "read",
    "POST /v1/consents": "",
    "GET /v1/keys": "",
    "POST /v1/keys": "",
    "GET /v1/keys/own": "ingest read serve train promote",
    "POST /v1/keys/{id}/revoke": "",
    "POST /v1/keys/{id}/rotate": "",
    "GET /v1/edited-files": "read ingest",
    "GET /v1/ledger": "read ingest",
    "POST /v1/labels": "",
    "GET /v1/labels/next": "read",
    "GET /v1/labels/rates": "read",
    "POST /v1/labels/undo": "",
    "GET /v1/loops": "read",
    "GET /v1/loops/cycles": "read",
    "GET /v1/redaction": "read ingest",
    "POST /v1/redaction": "",
    "GET /v1/redaction/counts": "read ingest",
    "GET /v1/rejected": "read ingest",
    "GET /v1/rejected/fuses": "read ingest",
    "POST /v1/rejected/release": "",
    "POST /v1/rejected/replay": "",
    "GET /v1/rejected/{id}": "read ingest",
    "GET /v1/rewards/comparison": "read",
    "GET /v1/rewards/definitions": "read",
    "GET /v1/rewards/rates": "read",
    "GET /v1/sessions": "read",
    "GET /v1/sessions/{session_id}": "read",
    "GET /v1/shards": "read train",
    "GET /v1/shards/{shard}": "read train",
    "DELETE /v1/shards/{shard}": "",
    "GET /v1/shards/{shard}/samples": "read train",
    "GET /v1/shards/{shard}/files/{name}": "read train",
    "GET /v1/signing-key": "ingest read serve train promote",
    "GET /v1/suites/{suite}/comparison": "read promote",
    "POST /v1/suites/{suite}/plan": "read promote",
    "GET /v1/suites/{suite}/proposals": "read promote",
    "GET /v1/suites/{suite}/proposals/{task}": "read promote",
    "POST /v1/suites/{suite}/proposals/{task}": "promote",
    "GET /v1/suites/{suite}/results": "read promote",
    "POST /v1/suites/{suite}/results": "promote",
    "GET /v1/survival": "read",
}


#: What a route refuses to be without, before it looks at the key.
QUERIES = {"GET /v1/channels/{name}/assign": "?key=k"}

#: Commands that ask a service with a key: each asks routes of the table above.
WITH_A_KEY = """
audit list, audit verify, bench compare, bench import, bench show, canary status, channels fleet,
channels follow, channels history, channels list, channels policy, channels release, channels show,
channels watch, checkpoints lineage, checkpoints list, checkpoints register, checkpoints show,
checkpoints withdraw, consent list, consent set, gate approve, gate check, gate hindsight, gate
plan, import, keys create, keys list, keys revoke, keys rotate, ledger, loop history, loop status,
observe, promote, prove, query, record, redaction counts, redaction modes, redaction set, rejected
fuses, rejected list, rejected release, rejected replay, rejected show, rewards show, rollback,
sessions export, sessions list, sessions show, shards drop, shards export, shards list,
shards publish, shards show, suites review, survival
"""
#: Commands for whoever may write the lake's files: no key makes them work from elsewhere.
AT_THE_LAKE = """
audit sign, backup, bench audit, bench measure, bench restore, bench run, canary step, canary watch,
checkpoints digest, config, db check, db upgrade, demo, erase, events schema, examples, iceberg
drop, iceberg publish, iceberg show, lake compact, lake gc, lake stats, lake verify, login, logout,
loop run, quotas list, quotas set, redaction rules, redaction test, restore, retention list,
retention run, retention set, rewards backfill, rewards compare, rewards judge, rewards label,
rewards list, rewards rates, rewards run, serve, sessions publish, shards build, shards diff, shards
verify, simulate, snapshots create, snapshots drop, snapshots list, snapshots show, suites export,
suites lint, suites mine, suites prepare, suites register, webhooks add, webhooks deliver, webhooks
list, webhooks remove
"""


def routes() -> set[str]:
    return {
        f"{method} {re.sub(r':[a-z]+}', '}', path)}"
        for handler in ROUTES
        for path in handler.paths
        for method in handler.http_methods
        if method != "OPTIONS"
    }


def place_of(route: str) -> tuple[str, str]:
    method, path = re.sub(r"{\w+}", "1", route).split()
    return method, path + QUERIES.get(route, "")


def test_every_route_has_a_line() -> None:
    assert routes() == set(OPEN_TO)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    data = tmp_path_factory.mktemp("matrix")
    with open_or_make(load_settings(data, environment={})) as lake:
        keys: dict[str, str] = {
            role: create_key(lake.database, role, "default")[1] for role in ROLES
        }
    with running_server(data) as server:
        yield server, keys


def _asked(client: ServiceClient, method: str, path: str) -> HttpAnswer:
    """With a body that is no JSON: whoever may ask is told of it, and nothing is done."""
    if method == "POST":
        return client.post(path, b"{")
    return client.get(path) if method == "GET" else client.delete(path)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_ask_what_the_table_says(
    served: tuple[Server, dict[str, str]], role: str
) -> None:
    server, keys = served
    with server.client(keys[role]) as client:
        for route, roles in OPEN_TO.items():
            method, path = place_of(route)
            reply = _asked(client, method, path)
            allowed = roles == EVERYBODY or role in (*roles.split(), "admin")
            assert (reply.status == 403) != allowed, (route, reply.status)
            assert reply.status != 401, route
            if not allowed:
                assert reply.json()["error"] == "RoleMissing"


def test_without_a_key_only_what_is_everybodys_is_answered(
    served: tuple[Server, dict[str, str]],
) -> None:
    server, _ = served
    with ServiceClient(server.url) as client:
        for route, roles in OPEN_TO.items():
            method, path = place_of(route)
            reply = _asked(client, method, path)
            open_to_all = roles == EVERYBODY or route == "GET /metrics"
            assert (reply.status == 401) != open_to_all, (route, reply.status)


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, bool]]:
    """The names of commands, and whether they ask a service."""
    if not hasattr(command, "list_commands"):
        yield name, any("--url" in option.opts for option in command.params)
        return
    context = typer.Context(command)
    for part in command.list_commands(context):
        yield from _commands(command.get_command(context, part), f"{name} {part}".strip())


@pytest.mark.smoke
def test_every_command_says_whether_a_key_is_enough() -> None:
    found = dict(_commands(typer.main.get_command(cli.app)))
    listed = {
        name: afar
        for names, afar in ((WITH_A_KEY, True), (AT_THE_LAKE, False))
        for name in names.replace("\n", " ").strip().split(", ")
    }
    listed = {name.replace(",", "").strip(): afar for name, afar in listed.items()}
    assert found == listed
