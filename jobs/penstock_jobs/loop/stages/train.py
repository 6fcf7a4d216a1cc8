"""Let the trainer make the next checkpoint of the parent and the shard."""

from pathlib import Path

from penstock.checkpoints.digests import text_digest
from penstock.checkpoints.registration import find
from penstock.http.address import HttpAddress
from penstock.http.client import Bounds
from penstock.settings import without_secrets
from penstock.shards.manifest import folder_of
from penstock_jobs.loop import environment
from penstock_jobs.loop.keeping import written_inputs
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.settings import LoopSettings
from penstock_jobs.loop.stage import Answer, Done, Facts, Work
from penstock_jobs.loop.trainers.command import CommandTrainer
from penstock_jobs.loop.trainers.http import HttpTrainer, Pace
from penstock_jobs.loop.training import Task, Trainer

#: An answer of a trainer, and the wait for one by HTTP.
_ANSWER_BYTES_MAX = 64 * 1024
_ANSWER_SECONDS_MAX = 60.0
#: The longest pause until it is asked again, also where it asks for more.
_PAUSE_SECONDS_MAX = 300.0

NAME = "train"
_TOLD = ("shard", "shard_folder", "parent", "parent_uri", "parent_digest", "checkpoint")


def wanted(_loop: LoopFile) -> bool:
    return True


def inputs(work: Work) -> Facts:
    parent = find(work.lake.database, work.tenant, work.parent)
    shard = work.results["shard"]["shard"]
    trainer = work.loop.trainer
    asked = {"url": trainer.url} if trainer.command is None else {"command": trainer.command}
    return asked | {
        "shard": shard,
        "shard_folder": _address(work.lake.settings.store_url, folder_of(shard)),
        "parent": parent.name,
        "parent_uri": parent.uri,
        "parent_digest": parent.digest,
        "checkpoint": work.candidate,
    }


def run(work: Work, inputs: Facts) -> Answer:
    task = Task(
        key=key_of(work.tenant, inputs),
        attempt=work.held.epoch,
        limit_s=work.loop.trainer.limit_s,
        facts={name: inputs[name] for name in _TOLD}
        | {
            "lake": without_secrets(work.lake.settings.store_url),
            "loop": work.loop.name,
            "cycle": work.cycle.number,
        },
    )
    made = open_trainer(work).train(task, work.held.lost)
    result = {"uri": made.uri, "digest": made.digest, "form": made.form, "note": made.note}
    return Done(result, told=f"{made.uri}, {made.digest}")


def key_of(tenant: str, inputs: Facts) -> str:
    """Begins with the checkpoint's name, for who looks at it."""
    _, digest = written_inputs(inputs)
    whole = text_digest(f"{tenant}\0{digest}").removeprefix("sha256:")
    return f"{inputs['checkpoint']}-{whole}"


def open_trainer(work: Work) -> Trainer:
    """Raises InvalidInput."""
    settings, trainer = work.lake.settings, work.loop.trainer
    if trainer.command is not None:
        folder = trainer.output or settings.data / "loops" / work.label
        return CommandTrainer(
            command=work.loop.here(trainer.command),
            directory=work.loop.directory,
            folder=folder.absolute() / f"cycle-{work.cycle.number:04d}",
            data=settings.data,
            answer_bytes_max=_ANSWER_BYTES_MAX,
        )
    assert trainer.url is not None
    return HttpTrainer(
        address=HttpAddress.of(trainer.url, "The address of the trainer"),
        token=environment.token(trainer.token_env),
        bounds=Bounds(_ANSWER_SECONDS_MAX, _ANSWER_BYTES_MAX),
        pace=Pace(
            settings.room(LoopSettings).loop_poll_seconds,
            _PAUSE_SECONDS_MAX,
            settings.room(LoopSettings).loop_trainer_silence_seconds,
        ),
    )


def _address(store_url: str, folder: str) -> str:
    """A path where the store is files of this machine, else an address."""
    if store_url.startswith("file://"):
        return str(Path(store_url.removeprefix("file://")) / folder)
    base, _, options = store_url.partition("?")
    return f"{base.rstrip('/')}/{folder}" + (f"?{options}" if options else "")
