"""Checkpoints: what can be registered, what their files have to be, and where they came from."""

import hashlib
import os
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import Database, now_us
from penstock.backends.storage import open_store
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings, load_settings
from penstock.events.event import session_key
from penstock.lake.segments import make_filter
from penstock.registry.channels.channel import serving_channels
from penstock.registry.checkpoints import digests
from penstock.registry.checkpoints.artifact_roots import ArtifactRoots
from penstock.registry.checkpoints.checkpoint import (
    EDGES,
    STATES,
    Checkpoint,
    CheckpointConflict,
    CheckpointUnknown,
    DigestMismatch,
    Learner,
    LineageBroken,
    StateRefused,
    check_edge,
)
from penstock.registry.checkpoints.lineage import learned_of, learners, lineage
from penstock.registry.checkpoints.registration import find, list_checkpoints, register, withdraw
from penstock.registry.checkpoints.tables import checkpoint
from penstock.shards.shard import ShardUnknown
from penstock.shards.tables import shard, shard_mark
from tests.support.checkpoint_factory import NOWHERE, TENANT, add, digest_of, promote
from tests.support.servers.s3 import S3Server

EMPTY = f"sha256:{hashlib.sha256(b'').hexdigest()}"


def take_out(database: Database, name: str) -> Checkpoint:
    return withdraw(database, tenant=TENANT, name=name, reason="no use", actor="dan")


def register_files(
    database: Database, path: Path | str, digest: str | None = None, **facts: Any
) -> Checkpoint:
    told = {"tenant": TENANT, "name": "a", "uri": str(path), "digest": digest, "actor": "ann"}
    return register(database, NOWHERE, **told | facts)


# Registering


def test_the_same_facts_again_are_no_news(database: Database) -> None:
    add(database, "root")
    add_shard(database, "1")
    facts = {"parent": "root", "form": "delta", "shards": [shard_id("1")]}
    first = add(database, "a", **facts)
    again = add(database, "a", **facts | {"actor": "another", "note": "again"})
    assert first == again == find(database, TENANT, "a") == find(database, TENANT, digest_of("a"))
    assert (first.state, first.checked, first.bytes) == ("registered", "not_looked", None)
    listed = list_checkpoints(database, TENANT)
    assert {one.name for one in listed} == {"root", "a"}
    assert listed == sorted(listed, key=lambda one: (one.registered_at, one.name))
    assert len(lineage(database, TENANT, "a").moves) == 1


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"digest": digest_of("b")}, "with the digest"),
        ({"uri": "https://models.test/elsewhere"}, "with the uri"),
        ({"parent": "root"}, "with the parent None, not root"),
        ({"parent": "root", "form": "delta"}, "with the form whole, not delta"),
        ({"name": "b"}, "its digest is registered as a"),
    ],
)
def test_a_name_and_a_digest_mean_one_checkpoint(
    embedded: Database, facts: dict[str, Any], words: str
) -> None:
    add(embedded, "root", "a")
    with pytest.raises(CheckpointConflict, match=words):
        add(embedded, "a", **{"digest": digest_of("a")} | facts)
    assert len(list_checkpoints(embedded, TENANT)) == 2


@pytest.mark.parametrize("name", ["", " ", "a\n", "x" * 129, "sha256:abc", "\ud800", "a\x00"])
def test_names_can_be_read(embedded: Database, name: str) -> None:
    with pytest.raises(InvalidInput, match="name of a checkpoint"):
        add(embedded, name, digest=EMPTY)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("", "printable"),
        ("models/a", "absolute"),
        ("file://elsewhere/models/a", "followed by a path"),
        ("https://ann:secret@models.test/a", "must not contain keys"),
        ("https://models.test/a?token=secret", "must not contain keys"),
        ("http://[::1", "Invalid IPv6"),
        ("s3://", "name of a bucket"),
        ("s3://bucket/a?zone=1", "not one of its options"),
    ],
)
def test_addresses_that_are_none(embedded: Database, uri: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        add(embedded, "a", uri=uri)
    assert "secret" not in str(refused.value)


def test_a_delta_needs_a_chain_down_to_a_whole_one(embedded: Database) -> None:
    with pytest.raises(InvalidInput, match="needs a parent"):
        add(embedded, "a", form="delta")
    with pytest.raises(InvalidInput, match="`whole` or `delta`"):
        add(embedded, "a", form="lora")
    with pytest.raises(CheckpointUnknown, match="checkpoint 'root' does not exist"):
        add(embedded, "a", form="delta", parent="root")
    add(embedded, "root")
    add(embedded, "a", form="delta", parent="root")
    add(embedded, "b", form="delta", parent=digest_of("a"))
    with pytest.raises(StateRefused, match="b is a delta on it"):
        take_out(embedded, "a")
    take_out(embedded, "b")
    take_out(embedded, "a")
    with pytest.raises(LineageBroken, match="its ancestor a is withdrawn"):
        add(embedded, "c", form="delta", parent="a")
    assert add(embedded, "c", parent="a").parent == "a"  # whole: it needs nothing of it
    assert [one.name for one in lineage(embedded, TENANT, "c").parents] == ["a", "root"]


def test_nothing_is_its_own_ancestor(embedded: Database) -> None:
    with pytest.raises(InvalidInput, match="own parent"):
        add(embedded, "a", parent="a")
    add(embedded, "a")
    add(embedded, "b", parent="a", form="delta")
    with embedded.write() as connection:
        connection.execute(
            sa.update(checkpoint).where(checkpoint.c.name == "a").values(parent="b", form="delta")
        )
    with pytest.raises(LineageBroken, match="its own ancestor"):
        lineage(embedded, TENANT, "b")
    with pytest.raises(LineageBroken):
        promote(embedded, "b")


# States


def test_states_move_along_their_edges_alone() -> None:
    allowed = {(one, other) for one, others in EDGES.items() for other in others}
    assert allowed == {
        ("registered", "serving"), ("serving", "retired"), ("serving", "rolled_back"),
        ("retired", "serving"), ("rolled_back", "serving"), ("registered", "withdrawn"),
        ("retired", "withdrawn"), ("rolled_back", "withdrawn"),
    }  # fmt: skip
    for one, other in product(STATES, STATES):
        said = f"is {one} and cannot become {other}"
        with nullcontext() if (one, other) in allowed else pytest.raises(StateRefused, match=said):
            check_edge("a", one, other)


def test_what_is_withdrawn_stays_so(embedded: Database) -> None:
    add(embedded, "a")
    assert take_out(embedded, "a").state == take_out(embedded, "a").state == "withdrawn"
    assert add(embedded, "a").state == "withdrawn"
    with pytest.raises(StateRefused, match="another name"):
        promote(embedded, "a")
    assert [one.to_state for one in lineage(embedded, TENANT, "a").moves] == [
        "registered",
        "withdrawn",
    ]
    with pytest.raises(InvalidInput, match="reason"):
        withdraw(embedded, tenant=TENANT, name="a", reason=" ", actor="dan")
    with pytest.raises(CheckpointUnknown):
        take_out(embedded, "b")


# Digests


def test_a_file_has_the_digest_of_its_bytes(embedded: Database, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights" * 1000)
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    made = register_files(embedded, path)  # it is taken from the file
    assert (made.digest, made.checked, made.bytes) == (digest, "verified", 7000)
    assert register_files(embedded, path, digest) == made
    with pytest.raises(InvalidInput, match="No digest cannot be used"):
        register_files(embedded, "https://models.test/a", name="b")


def test_a_folder_has_the_digest_of_its_list(embedded: Database, tmp_path: Path) -> None:
    folder = tmp_path / "a model"
    (folder / "b").mkdir(parents=True)
    files = {"b/1": b"one", "b.txt": b"", "ä": b"two"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "link").symlink_to(folder / "b" / "1")
    listed = files | {"link": b"one"}
    lines = [
        b"%b\0%d\0%b\n" % (name.encode(), len(listed[name]), hashed(listed[name]))
        for name in sorted(listed, key=str.encode)
    ]
    digest = f"sha256:{hashlib.sha256(b''.join(lines)).hexdigest()}"
    made = register_files(embedded, folder.as_uri(), digest)
    assert (made.checked, made.bytes) == ("verified", 9)
    assert digests.digest_files(str(folder), NOWHERE).digest == digest


def hashed(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def test_files_that_differ_are_refused(embedded: Database, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"half of it")
    with pytest.raises(DigestMismatch, match=f"not {digest_of('a')}"):
        register_files(embedded, path, digest_of("a"))
    assert list_checkpoints(embedded, TENANT) == []
    assert register_files(embedded, path, digest_of("a"), look=False).checked == "not_looked"


def test_what_can_be_no_checkpoint(embedded: Database, tmp_path: Path) -> None:
    empty, linked, pipe = tmp_path / "empty", tmp_path / "linked", tmp_path / "pipe"
    empty.mkdir()
    linked.mkdir()
    (linked / "up").symlink_to(tmp_path)
    os.mkfifo(pipe)
    for path, words in (
        (empty, "contains no files"),
        (linked, "link to a folder"),
        (pipe, "not a regular file"),
        ("/dev/zero", "not a regular file"),
    ):
        with pytest.raises(InvalidInput, match=words):
            register_files(embedded, path, EMPTY)


def test_files_in_a_bucket(embedded: Database, s3: S3Server, tmp_path: Path) -> None:
    prefix = s3.new_prefix()
    for name, content in {"model/a.bin": b"one", "model/b/c.bin": b"two"}.items():
        put(s3, f"{prefix}/{name}", content)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    expected = digests.digest_files(str(tmp_path / "model"), NOWHERE)
    settings = Settings(data=tmp_path)
    assert digests.digest_files(s3.store_url(f"{prefix}/model"), settings) == expected
    one = digests.digest_files(s3.store_url(f"{prefix}/model/a.bin"), settings)
    assert one == digests.digest_files(str(tmp_path / "model" / "a.bin"), NOWHERE)
    assert "nothing is there" in digests.digest_files(s3.store_url(f"{prefix}/none"), settings).why
    uri = s3.store_url(f"{prefix}/model")
    with pytest.raises(DigestMismatch):
        register(embedded, settings, tenant=TENANT, name="a", uri=uri, digest=EMPTY, actor="ann")
    for root, found in ((f"{prefix}/model", expected.digest), (f"{prefix}/mode", None)):
        facts = {"artifact_roots": s3.store_url(root)}
        roots = ArtifactRoots.of(load_settings(tmp_path, {}, facts))
        assert digests.digest_files(uri, settings, roots=roots).digest == found
    away = s3.store_url(f"{prefix}/model", "http://127.0.0.1:9")
    assert "cannot be reached" in digests.digest_files(away, settings).why


def put(server: S3Server, name: str, content: bytes) -> None:
    above, _, last = name.rpartition("/")
    settings = Settings(data=server.root, store_url=server.store_url(above))
    with open_store(settings).create(last) as file:
        file.write(content)


# Shards, and what marks them


def shard_id(name: str) -> str:
    return f"sha256:{name * 64}"


def add_shard(
    database: Database, digit: str, name: str = "realtime", sessions: Sequence[str] = ()
) -> None:
    held = make_filter(session_key(TENANT, session) for session in sessions)
    row = {
        "id": shard_id(digit), "tenant": TENANT, "name": name, "snap": 1, "snapshot": "s",
        "samples": 1, "tokens": 1, "trainable": 1, "bytes": 1, "session_filter": held,
        "added_snap": 1, "created_at": now_us(), "record": "{}",
    }  # fmt: skip
    with database.write() as connection:
        connection.execute(sa.insert(shard).values(row))


def mark(database: Database, digit: str, session: str) -> None:
    row = {"shard": shard_id(digit), "tenant": TENANT, "session_id": session, "reason": "no_train"}
    with database.write() as connection:
        connection.execute(sa.insert(shard_mark).values(row | {"marked_at": now_us()}))


def test_marks_of_shards_reach_all_that_were_trained_on_them(database: Database) -> None:
    for digit in "123":
        add_shard(database, digit)
    add(database, "root", shards=[shard_id("1")])
    add(database, "a", parent="root", shards=[shard_id("2")])
    add(database, "b", parent="a", shards=["sha256:3333"])
    add(database, "stranger", shards=[shard_id("3")])
    promote(database, "b")
    mark(database, "1", "s-1")
    mark(database, "3", "s-3")
    found = lineage(database, TENANT, "b")
    assert [(one.checkpoint, one.shard) for one in found.shards] == [
        ("b", shard_id("3")),
        ("a", shard_id("2")),
        ("root", shard_id("1")),
    ]
    assert [(one.checkpoint, one.session_id, one.reason) for one in found.marks] == [
        ("b", "s-3", "no_train"),
        ("root", "s-1", "no_train"),
    ]
    serving = serving_channels(database, TENANT, "b")
    assert [(one.channel, one.arm) for one in serving] == [("production", "current")]
    assert lineage(database, TENANT, "root").children == ("a",)
    assert [one.session_id for one in lineage(database, TENANT, "a").marks] == ["s-1"]
    assert learners(database, TENANT, shard_id("2")) == [
        Learner("a", "registered", None),
        Learner("b", "serving", "a"),
    ]
    assert learners(database, TENANT, shard_id("9")) == []


def test_what_parents_learned_counts(database: Database) -> None:
    add_shard(database, "1", sessions=["s-1", "s-2"])
    add_shard(database, "2", sessions=["s-3"])
    root = add(database, "root", shards=[shard_id("1")])
    child = add(database, "a", parent="root", shards=[shard_id("2")])
    with database.read() as connection:
        asked = ["s-3", "s-4", "s-1"]
        assert learned_of(connection, root, asked) == ["s-1"]
        assert learned_of(connection, child, asked) == ["s-1", "s-3"]
        assert learned_of(connection, child, []) == []


def test_shards_are_named_as_elsewhere(embedded: Database) -> None:
    add_shard(embedded, "1", "one")
    add_shard(embedded, "2", "two")
    made = add(embedded, "a", shards=["one", "2222", shard_id("1")])
    assert made.shards == (shard_id("1"), shard_id("2"))
    for text, words in (
        ("nobody", "does not exist"),
        ("", "does not exist"),
        ("%", "does not exist"),
        ("\ud800", "does not exist"),
    ):
        with pytest.raises(ShardUnknown, match=words):
            add(embedded, "b", shards=[text])
    add_shard(embedded, "3", "one")
    assert add(embedded, "c", shards=["one"]).shards == (shard_id("3"),)  # the newest of it
