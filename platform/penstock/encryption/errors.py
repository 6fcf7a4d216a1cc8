"""The errors of encryption at rest."""

from penstock.errors import PenstockError
from penstock.storage.errors import StoreRefused, StoreUnreachable


class KeyServiceUnreachable(StoreUnreachable):
    """The key service {where} does not answer: {why}.
    Events are taken in and wait in the log; files of tenants whose key is in memory are read.
    Penstock tries again as long as it has work there. Check whether the service is up."""


class KeyServiceRefused(StoreRefused):
    """The key service {where} refused: {why}.
    Check its key, and what the token may do: encrypt and decrypt."""


class MasterKeysUnfit(PenstockError, exit_status=2):
    """The master keys in {file} cannot be used: {why}.
    Make one by `head -c 32 /dev/urandom | base64 > FILE`, in a file that only you can read."""


class DataKeyUnfit(StoreRefused):
    """The data key {id} of {tenant} cannot be unwrapped: {why}.
    Name the key service that it was made with; keys of before stay in its file, below the new."""


class DataKeyMissing(StoreRefused):
    """The file {name} is sealed with the data key {id}, which is not in the database.
    It was deleted when its tenant was erased, or the file is of another lake."""


class SealedFileDamaged(StoreRefused):
    """The sealed file {name} cannot be opened: {why}.
    It was changed, cut or moved since it was written, or its key is another. Restore it."""


class NotEncrypted(PenstockError, exit_status=2):
    """The lake {where} is not encrypted: it has no data keys.
    Set PENSTOCK_ENCRYPTION, as docs/privacy.md says."""


class TenantWithoutDataKey(PenstockError, exit_status=2):
    """The tenant {tenant} has no data key yet: the first one is made with its first file."""


class EncryptionOff(PenstockError, exit_status=2):
    """The lake {where} has sealed files, and PENSTOCK_ENCRYPTION is off.
    Set it, and what belongs to it, as where these files were written."""
