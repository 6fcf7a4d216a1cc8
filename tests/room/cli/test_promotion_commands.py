"""Checkpoints and channels as a person uses them."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.database.engine import Database
from penstock.core.settings import load_settings
from tests.support.checkpoint_factory import add_scores

Run = Callable[..., Any]

POLICY = """\
[[require]]
suite = "core"
minimum = 0.5
min_tasks = 30
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Files of three checkpoints."""
    for name in ("a", "b", "c"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "weights").write_text(name)
    return tmp_path / "models"


@pytest.fixture
def registry(run: Run, models: Path, data: Path) -> Run:
    """The commands, with a policy for production that a and c pass and b does not."""
    for name in ("a", "b", "c"):
        assert run("checkpoints", "register", name, "--uri", str(models / name)).status == 0
    with closing(Database.of(load_settings(data, environment={}))) as database:
        add_scores(database, {"a": 0.8, "b": 0.2, "c": 0.9})
    (models / "policy.toml").write_text(POLICY)
    done = run("channels", "policy", "production", "--set", str(models / "policy.toml"))
    assert (done.status, done.err[:28]) == (0, "production version 1: policy")
    return run


def promote(run: Run, name: str, *more: str) -> Any:
    return run("promote", name, "--reason", "it is better", "--by", "ann", *more)


def test_register_says_what_the_digest_is_and_whether_the_files_have_it(
    run: Run, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = models / "a" / "weights"
    digest = f"sha256:{hashlib.sha256(b'a').hexdigest()}"
    assert run("checkpoints", "digest", str(path)).out.strip() == digest
    monkeypatch.chdir(models)
    made = run("checkpoints", "register", "a", "--uri", "a/weights", "--digest", digest, "--json")
    found = made.json()
    assert (found["uri"], found["digest"], found["checked"]) == (str(path), digest, "verified")
    other = "sha256:" + "1" * 64
    wrong = run("checkpoints", "register", "b", "--uri", "b/weights", "--digest", other)
    assert (wrong.status, "not sha256:" in wrong.err) == (2, True)
    away = run("checkpoints", "register", "b", "--uri", "/no/b", "--digest", "sha256:" + "0" * 64)
    assert "unreachable from here" in away.err
    assert "cannot be read" in run("checkpoints", "register", "c", "--uri", "/no/c").err
    assert run("checkpoints", "digest", "/no/c").status == 2
    assert [one["name"] for one in run("checkpoints", "list", "--json").json()] == ["a", "b"]


def test_a_checkpoint_tells_what_it_came_from(run: Run, models: Path) -> None:
    run("checkpoints", "register", "a", "--uri", str(models / "a"))
    run("checkpoints", "register", "b", "--uri", str(models / "b"), "--parent", "a", "--delta")
    unknown = run("checkpoints", "register", "c", "--uri", str(models / "c"), "--shards", "x,y")
    assert (unknown.status, "'x' was not found" in unknown.err) == (2, True)
    table = run("checkpoints", "lineage", "b").out
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [
        ["checkpoint", "b"],
        ["parent", "a"],
    ]
    found = run("checkpoints", "lineage", "b", "--json").json()
    assert [one["name"] for one in found["parents"]] == ["a"]
    refused = run("checkpoints", "withdraw", "a", "--reason", "no use")
    assert (refused.status, "b is a delta on it" in refused.err) == (1, True)
    assert run("checkpoints", "withdraw", "b", "--reason", "no use", "--by", "dan").status == 0
    shown = run("checkpoints", "show", "b")
    assert "withdrawn" in shown.out
    assert "no use" in shown.out
    assert run("checkpoints", "show", "nobody").status == 2


def test_the_end_of_a_canary_says_what_it_left(registry: Run) -> None:
    promote(registry, "a")
    shared = promote(registry, "c", "--share", "0.9999999")
    assert "c on 99.99999 % of the traffic, beside a" in shared.err
    back = registry("rollback", "--reason", "slow")
    assert "back to a alone, without c" in back.err


def test_the_history_tells_the_story(registry: Run) -> None:
    promote(registry, "a")
    promote(registry, "b", "--override")
    registry("rollback", "--reason", "it undoes\nedits", "--by", "bob")
    registry("channels", "release", "production", "--reason", "found it", "--by", "carol")
    promote(registry, "c", "--share", "0.05")
    told = registry("channels", "history", "production")
    assert told.status == 0
    assert "the history is unaltered: 6 changes" in told.err
    lines = [" ".join(line.split()) for line in told.out.splitlines()]
    assert lines[0] == "version when (UTC) what gate marks who why"
    for line, words in zip(
        lines[1:],
        [
            ["policy sha256:"],
            ["a is the first", "PASS sha256:", "ann it is better"],
            ["a → b", "FAIL sha256:", "OVERRIDDEN", "ann it is better"],
            ["b → back to a", "pinned", "bob it undoes edits"],
            ["released, at a", "carol found it"],
            ["c on 5 % of the traffic, beside a", "PASS", "ann"],
        ],
        strict=True,
    ):
        assert all(word in line for word in words), line
    last = registry("channels", "history", "production", "--last", "3").out.splitlines()
    assert [" ".join(line.split()) for line in last[1:]] == lines[4:]
    found = registry("channels", "history", "production", "--json").json()
    assert found["flaw"] is None
    assert [one["overridden"] for one in found["changes"]] == [False, False, True, *[False] * 3]
    assert [one["outcome"] for one in found["changes"]][:3] == [None, "PASS", "FAIL"]
    listed = registry("channels", "list", "--json").json()
    assert [(one["channel"], one["canary"]) for one in listed] == [("production", "c")]


def test_a_history_that_was_changed_says_where_and_exits_with_1(registry: Run, data: Path) -> None:
    promote(registry, "a")
    promote(registry, "b", "--override")
    with closing(sqlite3.connect(data / "penstock.db")) as database:
        database.execute("DROP TRIGGER keep_channel_change_update")
        database.execute("UPDATE channel_change SET overridden = 0 WHERE version = 3")
        database.commit()
    told = registry("channels", "history", "production", "--last", "1")
    assert told.status == 1
    assert "is damaged at version 3" in told.err
    as_json = registry("channels", "history", "production", "--json")
    assert as_json.status == 1
    assert json.loads(as_json.out)["flaw"]["number"] == 3


def test_an_override_takes_an_admin_key_once_there_are_keys(
    registry: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoter = registry("keys", "create", "--role", "promote", "--json").json()["secret"]
    admin = registry("keys", "create", "--role", "admin", "--json").json()
    other = registry("keys", "create", "--role", "admin", "--tenant", "t", "--json").json()
    for key, words in (
        ((), "pass an admin key with --key or PENSTOCK_KEY"),
        (("--key", "pk_admin_none"), "unknown or was revoked"),
        (("--key", promoter), "the key has the role promote"),
        (("--key", other["secret"]), "of the tenant t"),
    ):
        refused = promote(registry, "b", "--override", *key)
        assert (refused.status, words in refused.err) == (1, True), refused.err
    monkeypatch.setenv("PENSTOCK_KEY", admin["secret"])
    done = promote(registry, "b", "--override")
    assert (done.status, "overrode the gate" in done.err) == (0, True)
    assert promote(registry, "a", "--override", "--reason", "").status == 2
    registry("keys", "revoke", admin["id"])
    assert promote(registry, "a", "--override").status == 1


def test_a_policy_is_shown_as_it_was_written(registry: Run, models: Path) -> None:
    assert registry("channels", "policy", "production").out == POLICY
    path = models / "policy.toml"
    path.write_text('[[requir]]\nsuite = "core"\n')
    wrong = registry("channels", "policy", "production", "--set", str(path))
    assert (wrong.status, "did you mean require" in wrong.err) == (2, True)
    assert str(path) in wrong.err
    assert registry("channels", "policy", "nobody").status == 2
