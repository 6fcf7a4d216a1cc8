"""What can be asked of proofs."""

from typing import Any

import msgspec

from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake


class ProofQuestion(Question):
    """`read_files` compares the checksums of shards' files, on the machine of the lake alone."""

    name: str
    read_files: bool = False


class SigningKeyQuestion(Question):
    """The lake's own."""


class SigningKeyAnswer(msgspec.Struct):
    algorithm: str
    key: str
    pem: str


def _prove(lake: Lake, caller: Caller, question: ProofQuestion) -> dict[str, Any]:
    from penstock.registry.proof.document import prove_checkpoint

    read_files = question.read_files and caller.at_the_lake
    return prove_checkpoint(lake, caller, question.name, read_files=read_files)


def _show_key(lake: Lake, _caller: Caller, _question: SigningKeyQuestion) -> SigningKeyAnswer:
    from penstock.core.signatures import ALGORITHM, SigningKey

    public = SigningKey.of(lake.settings).public
    return SigningKeyAnswer(ALGORITHM, public.name, public.pem)


PROVE = Call(
    "GET /v1/checkpoints/{name}/proof",
    _prove,
    ("read",),
    "What a checkpoint was made of and went through, signed",
    description="docs/proof.md says what stands in it, and how to verify it without Penstock.",
    reads_rows=True,
)
SHOW_SIGNING_KEY = Call(
    "GET /v1/signing-key",
    _show_key,
    ("ingest", "read", "serve", "train", "promote"),
    "The public key that proofs and reports are verified with",
)

CALLS = [PROVE, SHOW_SIGNING_KEY]
