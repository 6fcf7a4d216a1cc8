"""`penstock prove`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say, show_json, show_table, show_text
from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.errors import InvalidInput
from penstock.core.room import Endpoints
from penstock.core.toml_document import read_bounded
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client, service_url
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake


class ProofRequest(Request):
    """`read_files` compares the checksums of shard files; only on the lake's machine."""

    name: str
    read_files: bool = False


class SigningKeyRequest(Request):
    pass


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
    "The origin and history of a checkpoint, signed",
    description="docs/promote.md describes it, and how to verify it without Penstock.",
    reads_rows=True,
)
SHOW_SIGNING_KEY = Endpoint(
    "GET /v1/signing-key",
    _show_key,
    ("ingest", "read", "serve", "train", "promote"),
    "The public key that verifies proofs and reports",
)

ENDPOINTS: Endpoints = [PROVE, SHOW_SIGNING_KEY]


#: A document contains the full text of each verdict.
_BYTES_MAX = 256 * 1024 * 1024


@command()
def prove(
    checkpoint: Annotated[
        str | None, typer.Argument(metavar="CHECKPOINT", help="The name or digest of a checkpoint.")
    ] = None,
    *,
    verify: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="FILE",
            help="Verify a document, and show what has changed since.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="PUBLIC",
            help="With --verify: use only this public key, without a lake.",
        ),
    ] = None,
    public_key: Annotated[
        bool,
        typer.Option("--public-key", help="Print the public key that verifies documents, in PEM."),
    ] = False,
    by: options.By = None,
    data: options.AnyData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Prove what a checkpoint went through, with a document that anyone can verify.

    It names no session and no user. What cannot be shown is listed as a gap. --verify exits with 1
    if the document was changed.

    Example: penstock prove ckpt-0012 > proof.json
    """
    if (checkpoint is not None) + (verify is not None) + public_key != 1:
        why = "it takes a CHECKPOINT, or --verify FILE, or --public-key"
        raise InvalidInput(what="penstock prove", why=why)
    if verify is not None:
        yield from _verify(verify, key, data, url)
        return
    with open_client(data, url, tenant, by=by) as client:
        if checkpoint is None:
            answer = client.call(SHOW_SIGNING_KEY, SigningKeyRequest())
            yield answer
            show_text(answer.pem.strip())
            return
        document = client.call(PROVE, ProofRequest(name=checkpoint))
    for gap in document["gaps"]:
        say(f"not shown: {gap['part']} of {gap['of']}: {gap['why']}")
    yield document
    show_json(document)


def _verify(
    file: Path, key_file: Path | None, data: Path | None, url: str | None
) -> Iterator[object]:
    """Exit 1 if the document was changed. Raises InvalidInput, PublicKeyUnfit."""
    from penstock.core.lake_keys import PublicKey, signed_document
    from penstock.registry.proof.document import PROOF_FORMAT, differences

    document = signed_document(read_bounded(file, _BYTES_MAX, str(file)), str(file))
    found: list[str] | None = None
    if key_file is not None:
        key = PublicKey.of_pem(read_bounded(key_file, _BYTES_MAX, str(key_file)), str(key_file))
        genuine = key.has_signed(document)
    else:
        tenant = TENANT_DEFAULT if service_url(data, url) else document.get("tenant")
        with open_client(data, url, str(tenant or TENANT_DEFAULT)) as client:
            pem = client.call(SHOW_SIGNING_KEY, SigningKeyRequest()).pem
            key = PublicKey.of_pem(pem.encode(), "the key of the lake")
            genuine = key.has_signed(document)
            if genuine and document.get("format") == PROOF_FORMAT:
                question = ProofRequest(name=document["checkpoint"]["name"], read_files=True)
                found = list(differences(document, client.call(PROVE, question)))
    document = {"genuine": genuine, "key": key.name, "differences": found}
    yield Outcome(document, failed=not genuine)
    how = "as" if genuine else "not what"
    say(f"The document is {how} the key {key.name} signed{' it' if genuine else ''}.")
    if found:
        show_table(["changed since"], [[difference] for difference in found])
    elif found is not None:
        say("The lake still agrees with it.")
