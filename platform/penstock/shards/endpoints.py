"""What can be asked of the files of shards, and that they go."""

from typing import Annotated

from msgspec import Meta

from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.core.settings import MIB
from penstock.lake.lake import Lake
from penstock.shards.shard import ShardDropped

#: Of a file that one answer holds.
PIECE_BYTES_MAX = 8 * MIB
_OFFSET_MAX = 2**62


class ShardFileRequest(Request):
    """Bytes of the file `name` of a shard, `manifest.json` or one that stands in it. Fewer come at
    its end, and none behind it."""

    shard: str
    name: str
    start: Annotated[int, Meta(ge=0, le=_OFFSET_MAX)] = 0
    bytes: Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)] = PIECE_BYTES_MAX


def _read(lake: Lake, caller: Caller, request: ShardFileRequest) -> bytes:
    from penstock.core.files import relative_name
    from penstock.shards.errors import ShardFileUnknown
    from penstock.shards.manifest import read_manifest
    from penstock.shards.registered_shards import check_withdrawn, find_shard

    shard = find_shard(lake.database, caller.tenant, request.shard)
    check_withdrawn(lake.database, lake.settings, caller.tenant, shard.id)
    name = relative_name(request.name)
    if shard.gone is not None:
        read_manifest(lake.store, shard.folder, shard.id)  # says what happened to it
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
    "A part of a file of a shard",
    refused={
        403: "Consent was withdrawn for some of it, and the operator refuses it.",
        404: "There is no such shard, or file of it.",
        410: "Its files are gone.",
    },
)


_SHARD = "The shard's id, the beginning of it, or its name."
ShardName = Annotated[str, Meta(description=_SHARD, extra={"metavar": "ID"})]
_REASON = Meta(max_length=1_000, description="Why; readers of the shard are told.")
_FORCE = Meta(description="Also where a channel or a run still needs it.")


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
    "Delete the files of a shard, and keep what it was",
    refused={404: "There is no such shard.", 409: "It is still needed."},
)

ENDPOINTS: Endpoints = [READ_SHARD_FILE, DROP_SHARD]
