"""The errors of fleets."""

from penstock.errors import PenstockError


class FetchFailed(PenstockError, exit_status=3):
    """The checkpoint {checkpoint} was not fetched from {uri}: {why}."""


class CopyMismatch(PenstockError):
    """The files of {checkpoint} at {uri} have the digest {found}, not {digest}: they are not what
    was registered. They were not loaded."""


class LoadFailed(PenstockError):
    """The command that loads {checkpoint} {how}. The end of what it said: {output}"""


class FolderTaken(PenstockError, exit_status=2):
    """Another sidecar works in {folder}. Give each its own with --into."""


class ReplicaTaken(PenstockError, http_status=409):
    """Another sidecar reports as the replica {replica} of {channel}. Give each replica a name of
    its own with --replica; one that ended without a word is silent before long."""


class ReplicasFull(PenstockError, http_status=409):
    """The channel {channel} has {limit} replicas already. No more are taken."""
