"""A registry that lies: its answers name no file of the replica's machine."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.backends.http import AnswerUnusable
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.registry.fleet.checkpoint_cache import CheckpointCache
from penstock.registry.fleet.engine import MEMORY_NAME, LoadedCheckpoint, read_memory
from penstock.registry.fleet.registry_source import ChainLink, service_source
from tests.support.servers.scripted_server import Answer, serving

DIGEST = "sha256:" + "0" * 64
CHANNEL = {
    "channel": "production", "tenant": "", "version": 1, "checkpoint": "one", "digest": DIGEST,
    "uri": "/m/one", "previous": None, "canary": None, "canary_digest": None, "canary_uri": None,
    "canary_share": None, "pinned": False, "policy": None, "since": None, "changed_at": "",
    "previous_hash": "", "hash": "",
}  # fmt: skip
CHECKPOINT: dict[str, Any] = {
    "name": "one", "digest": DIGEST, "uri": "/m/one", "form": "whole", "parent": None, "shards": [],
    "state": "serving", "checked": "verified", "bytes": 1, "note": "", "registered_by": "a",
    "registered_at": "", "tenant": "",
}  # fmt: skip
HOSTILE_DIGESTS = ["../../victim", "sha256:../../victim", DIGEST + "/..", DIGEST[:-1], ""]


@pytest.mark.parametrize("lie", [{"digest": text} for text in HOSTILE_DIGESTS] + [{"name": "a\0b"}])
def test_a_checkpoint_s_answer_is_refused(lie: dict[str, str]) -> None:
    with serving() as server:
        server.script = lambda _asked: Answer(body=json.dumps(CHECKPOINT | lie))
        source = service_source(server.url.removesuffix("/train"), "production", "main")
        with pytest.raises((AnswerUnusable, InvalidInput)):
            source.chain("one")


@pytest.mark.parametrize(
    "lie", [{"digest": text} for text in HOSTILE_DIGESTS] + [{"checkpoint": "a\nb"}]
)
def test_a_channel_s_answer_is_refused(lie: dict[str, Any]) -> None:
    with serving() as server:
        source = service_source(server.url.removesuffix("/train"), "production", "main")
        server.script = lambda _asked: Answer(body=json.dumps(CHANNEL))
        assert source.target().digest == DIGEST
        server.script = lambda _asked: Answer(body=json.dumps(CHANNEL | lie))
        with pytest.raises((AnswerUnusable, InvalidInput)):
            source.target()


@pytest.mark.parametrize("digest", HOSTILE_DIGESTS)
def test_a_digest_names_a_folder_of_copies_or_nothing(tmp_path: Path, digest: str) -> None:
    with pytest.raises(InvalidInput):
        ChainLink("one", digest, "/m/one", "whole", None)
    link = ChainLink("one", DIGEST, "/m/one", "whole", None)
    msgspec.structs.force_setattr(link, "digest", digest)
    with pytest.raises(InvalidInput):
        CheckpointCache(tmp_path, Settings(data=tmp_path)).path(link)


@pytest.mark.parametrize("digest", HOSTILE_DIGESTS)
def test_a_memory_that_somebody_changed_is_forgotten(tmp_path: Path, digest: str) -> None:
    loaded = {"checkpoint": "one", "digest": DIGEST, "version": 1, "chain": [DIGEST]}
    document = {"sidecar": "a", "loaded": loaded}
    (tmp_path / MEMORY_NAME).write_text(json.dumps(document))
    assert read_memory(tmp_path).loaded == msgspec.convert(loaded, LoadedCheckpoint)
    loaded["chain"] = [digest]
    (tmp_path / MEMORY_NAME).write_text(json.dumps(document))
    assert read_memory(tmp_path).loaded is None
