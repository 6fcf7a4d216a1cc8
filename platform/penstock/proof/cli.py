"""`penstock prove`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import open_desk
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table, show_text

if TYPE_CHECKING:
    from penstock.proof.calls import SigningKeyAnswer


def prove(
    checkpoint: Annotated[
        str | None, typer.Argument(metavar="CHECKPOINT", help="By its name, or its digest.")
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", parser=options.path, metavar="FILE", help="Write the document here."
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="S", help="Whether this session is in its shards."),
    ] = None,
    leaves: Annotated[
        Path | None,
        typer.Option(
            "--leaves",
            parser=options.path,
            metavar="FILE",
            help="Write the digests of all sessions here; on the machine of the lake.",
        ),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify",
            parser=options.path,
            metavar="FILE",
            help="Whether a document is as it was signed, and what is otherwise now.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            parser=options.path,
            metavar="PUBLIC",
            help="With --verify: a file with the public key; else the lake is asked for its own.",
        ),
    ] = None,
    public_key: Annotated[
        bool, typer.Option("--public-key", help="Print the key that verifies documents, in PEM.")
    ] = False,
    by: options.By = None,
    data: options.DeskData = None,
    url: options.Url = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """One signed document from consent to replicas, which anybody verifies without Penstock.

    It names no session and no user. What nobody can show is named as a gap. --verify exits with 1
    when anything was changed.

    Example: penstock prove ckpt-0012 --output proof.json
    """
    asked = sum(each is not None for each in (checkpoint, verify)) + public_key
    if asked != 1:
        why = "it takes a CHECKPOINT, or --verify FILE, or --public-key"
        raise InvalidInput(what="penstock prove", why=why)
    if verify is not None:
        _verify(verify, key, data, url, json=json)
        return
    if public_key:
        answer = _signing_key(data, url, tenant)
        show_json(answer) if json else show_text(answer.pem.strip())
        return
    assert checkpoint is not None
    if leaves is not None:
        _write_leaves(leaves, checkpoint, data, url, tenant)
    from penstock.proof.calls import PROVE, ProofQuestion

    with open_desk(data, url, tenant, by=by) as desk:
        document = desk.ask(PROVE, ProofQuestion(name=checkpoint, session=session))
    if output is not None:
        _write(output, document)
    if json or output is None:
        show_json(document)
    for gap in document["gaps"]:
        say(f"not shown: {gap['part']} of {gap['of']}: {gap['why']}")


def _write(path: Path, document: dict[str, Any]) -> None:
    """In its one form. Raises InvalidInput."""
    from penstock.signatures import canonical

    try:
        path.write_bytes(canonical(document) + b"\n")
    except OSError as error:
        raise InvalidInput(what=str(path), why=error.strerror or str(error)) from error
    say(f"wrote {path}, signed with the key {document['signature']['key']}")


def _write_leaves(
    path: Path, checkpoint: str, data: Path | None, url: str | None, tenant: str
) -> None:
    """Raises InvalidInput, StoreNeeded."""
    from penstock.errors import StoreNeeded
    from penstock.lake.desk import service_url
    from penstock.lake.lake import open_existing
    from penstock.proof.document import write_leaves

    if service_url(data, url) is not None:
        raise StoreNeeded(command="penstock prove --leaves")
    try:
        with open_existing(data) as lake, path.open("w", encoding="utf-8") as file:
            count = write_leaves(lake, tenant, checkpoint, file)
    except OSError as error:
        raise InvalidInput(what=str(path), why=error.strerror or str(error)) from error
    say(f"wrote the digests of {count} sessions to {path}")


def _signing_key(
    data: Path | None, url: str | None, tenant: str = TENANT_DEFAULT
) -> "SigningKeyAnswer":
    from penstock.proof.calls import SHOW_SIGNING_KEY, SigningKeyQuestion

    with open_desk(data, url, tenant) as desk:
        return desk.ask(SHOW_SIGNING_KEY, SigningKeyQuestion())


def _verify(
    file: Path, key_file: Path | None, data: Path | None, url: str | None, *, json: bool
) -> None:
    """Exit 1 where it is not as it was signed. Raises InvalidInput, PublicKeyUnfit."""
    from penstock.signatures import PublicKey, signed_document

    document = signed_document(_read(file), str(file))
    if key_file is not None:
        key = PublicKey.of_pem(_read(key_file), str(key_file))
    else:
        key = PublicKey.of_pem(_signing_key(data, url).pem.encode(), "the key of the lake")
    genuine = key.has_signed(document)
    answer: dict[str, Any] = {"genuine": genuine, "key": key.name, "differences": None}
    if genuine and document.get("format") == _proof_format():
        answer["differences"] = _differences(document, data, url, by_key=key_file is not None)
    _show_verification(answer, document, json=json)
    if not genuine:
        raise typer.Exit(1)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(what=str(file), why=error.strerror or str(error)) from error


def _proof_format() -> str:
    from penstock.proof.document import PROOF_FORMAT

    return PROOF_FORMAT


def _differences(
    document: dict[str, Any], data: Path | None, url: str | None, *, by_key: bool
) -> list[str] | None:
    """None where there is no lake to compare with, which a key of one's own does not need."""
    from penstock.checkpoints.errors import CheckpointUnknown
    from penstock.lake.desk import service_url
    from penstock.lake.errors import LakeMissing
    from penstock.proof.calls import PROVE, ProofQuestion
    from penstock.proof.comparison import differences

    name = document["checkpoint"]["name"]
    tenant = TENANT_DEFAULT if service_url(data, url) is not None else document["tenant"]
    try:
        with open_desk(data, url, tenant) as desk:
            present = desk.ask(PROVE, ProofQuestion(name=name, read_files=True))
    except LakeMissing:
        if by_key and data is None:
            return None
        raise
    except CheckpointUnknown:
        return [f"the lake has no checkpoint {name}"]
    return differences(document, present)


def _show_verification(answer: dict[str, Any], document: dict[str, Any], *, json: bool) -> None:
    if json:
        show_json(answer)
        return
    if not answer["genuine"]:
        signature = document.get("signature")
        named = signature.get("key") if isinstance(signature, dict) else None
        why = f"it names the key {named}" if named != answer["key"] else "it was changed"
        say(f"The document is not what the key {answer['key']} signed: {why}.")
        return
    say(f"The document is as the key {answer['key']} signed it.")
    found = answer["differences"]
    if found:
        show_table(["otherwise in the lake now"], [[difference] for difference in found])
    elif found is not None:
        say("The lake is as it says.")
    else:
        say("It was not compared with a lake: --data or --url names one.")
