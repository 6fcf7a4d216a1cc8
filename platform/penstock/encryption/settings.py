"""The settings of encryption at rest."""

from dataclasses import dataclass

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class EncryptionSettings(RoomSettings):
    """See docs/privacy.md, Encryption at rest."""

    encryption: str = setting(
        "off",
        "who guards the keys of the lake's files: off, file, or kms",
        "Turn it on where disks, buckets or backups are in other hands than the service.",
        choices=("off", "file", "kms"),
    )
    encryption_key_file: str = setting(
        "",
        "with file: the master keys, each 32 bytes in base64 on a line; the first one wraps",
        "Name a file that lies elsewhere than the data, such as a mounted secret.",
    )
    kms_url: str = setting(
        "",
        "with kms: a key of Vault's or OpenBao's transit engine, https://HOST:8200/v1/transit/KEY",
        "Set it to the key that you made for Penstock.",
        needs="kms_token_file",
    )
    kms_token_file: str = setting(
        "",
        "with kms: a file with the token; it is read anew for each request",
        "An agent of the key service renews it there.",
        needs="kms_url",
    )
