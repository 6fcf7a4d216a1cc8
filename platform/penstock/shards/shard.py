"""Shards by name: their ids and folders, their settings and their errors. Light to import."""

import re
from dataclasses import dataclass

import msgspec

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.files import DIGEST_PREFIX, tenant_folder
from penstock.core.settings import GIB, RoomSettings, setting

ID_PREFIX = DIGEST_PREFIX
#: The folder of shards in the store: one folder per tenant, below it one per shard.
FOLDER = "shards"
_FOLDER_HEX = 16
_ID = re.compile(rf"{ID_PREFIX}[0-9a-f]{{{_FOLDER_HEX},64}}")


def is_shard_id(text: str) -> bool:
    """Whether a text is an id, or a beginning long enough to find the folder."""
    return _ID.fullmatch(text) is not None


def shard_folder(tenant: str, shard_id: str) -> str:
    """The folder of a shard. Raises InvalidInput for an invalid id."""
    if not is_shard_id(shard_id):
        why = f"it must be {ID_PREFIX} and {_FOLDER_HEX} to 64 hexadecimal digits"
        raise InvalidInput(what=f"The shard id {shard_id!r}", why=why)
    digits = shard_id.removeprefix(ID_PREFIX)[:_FOLDER_HEX]
    return f"{FOLDER}/{tenant_folder(tenant)}/{digits}"


def staging_folder(tenant: str) -> str:
    """The folder of a tenant's unfinished shards."""
    return f"{FOLDER}/{tenant_folder(tenant)}/staging"


@dataclass(frozen=True, kw_only=True)
class RegisteredShard:
    id: str
    tenant: str
    name: str
    snapshot: str
    snap: int
    samples: int
    tokens: int
    trainable: int
    bytes: int
    created_at: str
    #: `dropping`, `dropped` or `erased` if its files are gone.
    gone: str | None
    gone_at: str | None
    gone_why: str | None

    @property
    def folder(self) -> str:
        """The folder of its files in the store."""
        return shard_folder(self.tenant, self.id)


class ShardDropped(msgspec.Struct):
    """The deleted shard: no files if it was gone already. `needed` lists overruled reasons to keep
    it. Its `snapshot` keeps files of the lake until it is dropped too."""

    shard: str
    files: int
    bytes: int
    needed: list[str]
    snapshot: str


WARN, REFUSE = "warn", "refuse"


@dataclass(frozen=True, kw_only=True)
class ShardSettings(RoomSettings):
    """See docs/reference/settings.md."""

    withdrawn_shards: str = setting(
        WARN,
        "reading a shard that contains sessions whose consent was withdrawn",
        "Set it to refuse if nobody may train on such a shard.",
        choices=(WARN, REFUSE),
    )
    shard_cache_bytes_max: int = setting(
        64 * GIB,
        "local copies of shard files",
        "Set it to what a training machine can spare.",
        minimum=0,
    )


class ShardMissing(PenstockError, exit_status=2, http_status=404):
    """The shard {shard} does not exist: {where} is missing. `penstock shards list` shows all
    shards; one that is being built appears when it is complete."""


class ShardUnknown(PenstockError, exit_status=2, http_status=404):
    """The shard {shard!r} was not found: {why}. `penstock shards list` shows all shards."""


class ShardGone(ShardMissing, exit_status=2, http_status=410):
    """The files of the shard {shard} are gone: it was {how} at {when}{why}. `penstock shards list`
    still shows its row, lineage and counts; build its recipe again for a new shard."""


class ShardNeeded(PenstockError, exit_status=1, http_status=409):
    """The shard {shard} is still needed: {why}. --force drops it anyway."""


class ShardGoing(PenstockError, exit_status=1, http_status=409):
    """The shard {shard} is being dropped. Finish `penstock shards drop`, then build it again."""


class ShardWithdrawn(PenstockError, exit_status=1, http_status=403):
    """The shard {shard} contains {sessions} sessions without consent, and the operator refuses such
    shards (PENSTOCK_WITHDRAWN_SHARDS). Build its recipe again to leave them out."""


class ShardFileUnknown(PenstockError, exit_status=2, http_status=404):
    """The shard {shard} has no file {name!r}. Its manifest, manifest.json, names its files."""


class ShardDamaged(PenstockError):
    """The shard file {path} is unusable: {why}. `penstock shards verify` shows all damage; rebuild
    the shard from the recipe and snapshot of its manifest."""


class ShardInvalid(PenstockError):
    """The shard was refused: {file}, row {row}, sample {sample} breaks the rule {rule}: {why}."""


class PositionRefused(PenstockError, exit_status=2):
    """The reader cannot resume from this state: {why}. Open the reader like the one that saved it,
    or start without a state."""
