"""What can be asked of the files of shards."""

from typing import Annotated

from msgspec import Meta

from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.settings import MIB

#: Of a file that one answer holds.
PIECE_BYTES_MAX = 8 * MIB
_OFFSET_MAX = 2**62


class ShardFileQuestion(Question):
    """Bytes of the file `name` of a shard, `manifest.json` or one that stands in it. Fewer come at
    its end, and none behind it."""

    shard: str
    name: str
    start: Annotated[int, Meta(ge=0, le=_OFFSET_MAX)] = 0
    bytes: Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)] = PIECE_BYTES_MAX


def _read(lake: Lake, caller: Caller, question: ShardFileQuestion) -> bytes:
    from penstock.safe_names import relative_name
    from penstock.shards.errors import ShardFileUnknown
    from penstock.shards.manifest import folder_of
    from penstock.shards.registered_shards import find_shard

    shard = find_shard(lake.database, caller.tenant, question.shard)
    name = relative_name(question.name)
    try:
        with lake.store.open(f"{folder_of(shard.id)}/{name}") as file:
            start = min(question.start, file.size())
            content: bytes = file.read_at(min(question.bytes, file.size() - start), start)
            lake.tally.count(caller.tenant, caller.actor, "export", shard.id, bytes=len(content))
    except (FileNotFoundError, IsADirectoryError):
        raise ShardFileUnknown(shard=shard.id, name=question.name) from None
    return content


READ_SHARD_FILE = Call(
    path="/v1/shards/{shard}/files/{name}",
    question=ShardFileQuestion,
    answer=bytes,
    work=_read,
    roles=("read", "train"),
    summary="A part of a file of a shard",
    refused={404: "There is no such shard, or file of it."},
)

CALLS = [READ_SHARD_FILE]
