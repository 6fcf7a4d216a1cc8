"""The endpoints of shards: their files, and dropping them."""

from typing import Annotated

from msgspec import Meta

from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.core.settings import MIB
from penstock.lake.lake import Lake
from penstock.shards.shard import ShardDropped

#: Bytes of a file in one answer.
PIECE_BYTES_MAX = 8 * MIB
_OFFSET_MAX = 2**62


class ShardFileRequest(Request):
    """Bytes of a shard's file: `manifest.json`, or a file that it names. Fewer at the end, none
    beyond it."""

    shard: str
    name: str
    start: Annotated[int, Meta(ge=0, le=_OFFSET_MAX)] = 0
    bytes: Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)] = PIECE_BYTES_MAX


def _read(lake: Lake, caller: Caller, request: ShardFileRequest) -> bytes:
    from penstock.core.files import relative_name
    from penstock.shards.manifest import read_manifest
    from penstock.shards.registered_shards import check_withdrawn, find_shard
    from penstock.shards.shard import ShardFileUnknown

    shard = find_shard(lake.database, caller.tenant, request.shard)
    check_withdrawn(lake.database, lake.settings, caller.tenant, shard.id)
    name = relative_name(request.name)
    if shard.gone is not None:
        read_manifest(lake.store, shard.folder, shard.id)  # raises what happened to it
    try:
        with lake.store.open(f"{shard.folder}/{name}") as file:
            start = min(request.start, file.size())
            content: bytes = file.read_at(min(request.bytes, file.size() - start), start)
            lake.tally.count(caller.tenant, caller.actor, "export", shard.id, bytes=len(content))
    except (FileNotFoundError, IsADirectoryError):
        raise ShardFileUnknown(shard=shard.id, name=request.name) from None
    return content


READ_SHARD_FILE = Endpoint(
    "GET /v1/shards/{shard}/files/{name}",
    _read,
    ("read", "train"),
    "A part of a shard's file",
    refused={
        403: "Some sessions lost their consent, and the operator refuses such shards.",
        404: "The shard or the file does not exist.",
        410: "Its files are gone.",
    },
)


_SHARD = "The shard's id, the beginning of it, or its name."
ShardName = Annotated[str, Meta(description=_SHARD, extra={"metavar": "ID"})]
_REASON = Meta(max_length=1_000, description="The reason, which readers of the shard see.")
_FORCE = Meta(description="Drop it even if a channel or a run still needs it.")


class DropShard(Request):
    shard: ShardName
    reason: Annotated[str, _REASON] = ""
    force: Annotated[bool, _FORCE] = False


def _drop(lake: Lake, caller: Caller, question: DropShard) -> ShardDropped:
    from penstock.shards.registered_shards import drop_shard

    shard, reason, force = question.shard, question.reason, question.force
    return drop_shard(lake, caller.tenant, shard, by=caller.actor, reason=reason, force=force)


DROP_SHARD = Endpoint(
    "DELETE /v1/shards/{shard}",
    _drop,
    (),
    "Delete the files of a shard, and keep its record",
    refused={404: "The shard does not exist.", 409: "It is still needed."},
)

ENDPOINTS: Endpoints = [READ_SHARD_FILE, DROP_SHARD]
