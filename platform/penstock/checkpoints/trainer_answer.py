"""What a trainer answers the loop."""

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import msgspec

from penstock.checkpoints.checkpoint import Form
from penstock.checkpoints.digests import check_uri, digest_files
from penstock.errors import InvalidInput
from penstock.settings import ENVIRONMENT_PREFIX, load_settings

_ANSWER = f"{ENVIRONMENT_PREFIX}ANSWER"


def trained(
    made: str | os.PathLike[str],
    *,
    form: Form = "whole",
    note: str = "",
    uri: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The answer of a trainer: the address of what it made, with its digest.

    `made` is a file, a folder or s3://…, complete. `uri` is its address where that is another one:
    of a copy, or the same files as others see them. Where PENSTOCK_ANSWER names a file, as the loop
    has its commands told, the answer is written there, all of it or nothing; a trainer that is
    asked by HTTP sends it itself. Raises InvalidInput where there are no files to read.
    """
    environment = os.environ if environment is None else environment
    text = os.fspath(made)
    where = check_uri(text if "://" in text else Path(text).absolute().as_uri())
    files = digest_files(where, load_settings(environment=environment))
    if files.digest is None:
        raise InvalidInput(what=f"What was trained, {text},", why=files.why)
    answer = {"uri": check_uri(uri or where), "digest": files.digest, "form": str(form)}
    answer |= {"note": note} if note else {}
    if name := environment.get(_ANSWER):
        path = Path(name)
        unfinished = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(answer))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    return answer
