"""The settings of checkpoints."""

from dataclasses import dataclass

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings(RoomSettings):
    """See docs/settings.md."""

    artifact_roots: str = setting(
        "",
        "folders and s3:// prefixes, with commas, whose files are compared with the digest of a "
        "checkpoint that is registered over HTTP; {tenant} is the name of the key's tenant",
        "Set it, as /models/{tenant}, when tenants register files that the service can read.",
    )
