"""The errors of shards."""

from penstock.core.errors import PenstockError


class ShardMissing(PenstockError, exit_status=2, http_status=404):
    """There is no shard {shard}: {where} is not there. `penstock shards list` shows those there
    are; a shard that is being built appears when it is complete."""


class ShardUnknown(PenstockError, exit_status=2, http_status=404):
    """The shard {shard!r} was not found: {why}. `penstock shards list` shows them."""


class ShardGone(ShardMissing, exit_status=2, http_status=410):
    """The files of the shard {shard} are gone: it was {how} at {when}{why}. Its row, its lineage
    and its counts are in `penstock shards list`; its recipe, built again, makes a shard anew."""


class ShardNeeded(PenstockError, exit_status=1, http_status=409):
    """The shard {shard} is still needed: {why}. --force drops it all the same."""


class ShardGoing(PenstockError, exit_status=1, http_status=409):
    """The shard {shard} is being dropped. Run `penstock shards drop` of it to its end, then build
    it again."""


class ShardWithdrawn(PenstockError, exit_status=1, http_status=403):
    """The shard {shard} holds {sessions} sessions of which consent was withdrawn, and the operator
    refuses to have such shards read (PENSTOCK_WITHDRAWN_SHARDS). Its recipe, built again, makes
    it without them."""


class ShardFileUnknown(PenstockError, exit_status=2, http_status=404):
    """The shard {shard} has no file {name!r}: its manifest, manifest.json, names those it has."""


class ShardDamaged(PenstockError):
    """The shard file {path} cannot be used: {why}. `penstock shards verify` says what else is
    wrong with the shard; the recipe and the snapshot of its manifest make the same one again."""


class ShardInvalid(PenstockError):
    """The shard was refused: {file}, row {row}, sample {sample} breaks the rule {rule}: {why}."""


class PositionRefused(PenstockError, exit_status=2):
    """The reader cannot go on from this state: {why}. Open the reader for what the state was
    saved from, or start without a state."""
