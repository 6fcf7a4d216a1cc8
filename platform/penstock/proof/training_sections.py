"""The sections of a proof on what a checkpoint was made of: itself, its parents, their shards."""

from typing import Any

import sqlalchemy as sa

from penstock.checkpoints.checkpoint import Checkpoint
from penstock.errors import PenstockError
from penstock.proof.shard_records import file_problems, find_record
from penstock.proof.subject import ProofSubject
from penstock.settings import without_secrets
from penstock.shards.tables import shard
from penstock.terminal.output import time_of

_FILES = "files"
_REGISTERED = sa.select(shard.c.name, shard.c.created_at, shard.c.gone, shard.c.gone_at)


def show_checkpoint(subject: ProofSubject) -> dict[str, Any]:
    return _facts_of(subject.checkpoint)


def show_parents(subject: ProofSubject) -> list[dict[str, Any]]:
    """The nearest first."""
    return [_facts_of(parent) for parent in subject.parents]


def _facts_of(known: Checkpoint) -> dict[str, Any]:
    return {
        "name": known.name,
        "digest": known.digest,
        "uri": without_secrets(known.uri),
        "form": known.form,
        "parent": known.parent,
        "state": known.state,
        "files_checked": known.checked,
        "bytes": known.bytes,
        "registered_by": known.registered_by,
        "registered_at": moment(known.registered_at),
        "shards": list(known.shards),
    }


def show_shards(subject: ProofSubject) -> list[dict[str, Any]]:
    for learner in subject.ancestry:
        if not learner.shards:
            why = "it was registered without shards: nobody can say what it learned from"
            subject.lacks("shards", learner.name, why)
    return [_show_shard(subject, id_, names) for id_, names in subject.shards.items()]


def _show_shard(subject: ProofSubject, id_: str, names: list[str]) -> dict[str, Any]:
    lake = subject.lake
    with lake.database.read() as connection:
        mine = (shard.c.tenant == subject.tenant, shard.c.id == id_)
        row = connection.execute(_REGISTERED.where(*mine)).first()
    document: dict[str, Any] = {"shard": id_, "trained": names}
    gone = None if row is None else row.gone
    if row is None:
        subject.lacks("shards", id_, "it is not registered any more")
    else:
        document |= {"name": row.name, "built_at": moment(row.created_at)}
        document["gone_since"] = None if row.gone_at is None else moment(row.gone_at)
    try:
        document |= find_record(lake, id_, subject.tenant)
    except PenstockError as error:
        why = f"its files were {gone} before its digests were kept" if gone else str(error)
        subject.lacks("shards", id_, why)
        return document | {"state": gone or "damaged", "problems": []}
    problems = []
    if gone is None:
        files = document[_FILES]
        problems = file_problems(lake, subject.tenant, id_, files, read=subject.read_files)
    for problem in problems:
        subject.lacks("shards", id_, problem)
    state = gone or ("damaged" if problems else "there")
    checked = "checksums" if subject.read_files else "sizes"
    return document | {"state": state, "files_compared_by": checked, "problems": problems}


def moment(us: int) -> str:
    return time_of(us).isoformat()
