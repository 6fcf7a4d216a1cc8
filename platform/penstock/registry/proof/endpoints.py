"""What can be asked of proofs."""

from typing import Any

import msgspec

from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake


class ProofRequest(Request):
    """`read_files` compares the checksums of shards' files, on the machine of the lake alone."""

    name: str
    read_files: bool = False


class SigningKeyRequest(Request):
    """The lake's own."""


class SigningKeyAnswer(msgspec.Struct):
    algorithm: str
    key: str
    pem: str


def _prove(lake: Lake, caller: Caller, request: ProofRequest) -> dict[str, Any]:
    from penstock.registry.proof.document import prove_checkpoint

    read_files = request.read_files and caller.is_local
    return prove_checkpoint(lake, caller, request.name, read_files=read_files)


def _show_key(lake: Lake, _caller: Caller, _question: SigningKeyRequest) -> SigningKeyAnswer:
    from penstock.core.lake_keys import ALGORITHM, SigningKey

    public = SigningKey.of(lake.settings).public
    return SigningKeyAnswer(ALGORITHM, public.name, public.pem)


PROVE = Endpoint(
    "GET /v1/checkpoints/{name}/proof",
    _prove,
    ("read",),
    "What a checkpoint was made of and went through, signed",
    description="docs/promote.md says what stands in it, and how to verify it without Penstock.",
    reads_rows=True,
)
SHOW_SIGNING_KEY = Endpoint(
    "GET /v1/signing-key",
    _show_key,
    ("ingest", "read", "serve", "train", "promote"),
    "The public key that proofs and reports are verified with",
)

ENDPOINTS: Endpoints = [PROVE, SHOW_SIGNING_KEY]
