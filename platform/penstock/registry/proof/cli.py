"""`penstock prove`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say, show_json, show_table, show_text
from penstock.core.errors import InvalidInput
from penstock.core.toml_document import read_bounded
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client, service_url
from penstock.lake.commands import Outcome, command
from penstock.registry.proof.endpoints import (
    PROVE,
    SHOW_SIGNING_KEY,
    ProofRequest,
    SigningKeyRequest,
)

#: A document holds the whole text of each verdict.
_BYTES_MAX = 256 * 1024 * 1024


@command()
def prove(
    checkpoint: Annotated[
        str | None, typer.Argument(metavar="CHECKPOINT", help="By its name, or its digest.")
    ] = None,
    *,
    verify: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="FILE",
            help="Whether a document is as it was signed, and what is otherwise now.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="PUBLIC",
            help="With --verify: by this public key alone, without a lake.",
        ),
    ] = None,
    public_key: Annotated[
        bool, typer.Option("--public-key", help="Print the key that verifies documents, in PEM.")
    ] = False,
    by: options.By = None,
    data: options.AnyData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Prove what a checkpoint went through, by a signed document anyone can verify.

    It names no session and no user. What nobody can show is named as a gap. --verify exits with 1
    when anything was changed.

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
    """Exit 1 where it is not as it was signed. Raises InvalidInput, PublicKeyUnfit."""
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
        show_table(["otherwise in the lake now"], [[difference] for difference in found])
    elif found is not None:
        say("The lake is as it says.")
