"""Penstock: trajectories of coding agents, from production to training and back.

import penstock

with penstock.open("penstock-data") as lake:  # or a service: penstock.open("https://…")
    rows = lake.query("select type, count(*) from events group by all")
    rows.df()  # a data frame of pandas; .pl() of polars, .arrow() a table
    lake.sessions("project = 'web'").df()  # and lake.rewards(…); a notebook shows the first rows
    lake.shards.build("recipe.toml").id
    lake.checkpoint("ckpt-0012").digest
    lake.promote("ckpt-0012", reason="solves more")  # and lake.rollback(reason=…)
    channel = lake.channel("production")

penstock.assign(channel, "user-7").checkpoint  # which checkpoint serves this user

for batch in penstock.read_shard("penstock-data", "sft-persistent", rank=0, world=8):
    batch["input_ids"]  # numpy, in the same order on every machine

with penstock.Recorder("https://…", key).session("s-81f3") as session:  # of a live agent
    session.user_message("the streaming is broken")

Errors are a PenstockError. docs/reference/python.md lists all of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.errors import PenstockError
    from penstock.doors.python import LakeWithChannels as Lake
    from penstock.doors.python import RemoteLake
    from penstock.doors.python import open_lake as open
    from penstock.ingest.recorder.recorder import Recorder
    from penstock.lake.query.lake_query import LakeQuery as Query
    from penstock.registry.channels.channel import assign
    from penstock.registry.checkpoints.digests import trained
    from penstock.shards.reader import read_shard

    __version__: str

__all__ = [
    "Lake",
    "PenstockError",
    "Query",
    "Recorder",
    "RemoteLake",
    "__version__",
    "assign",
    "open",
    "read_shard",
    "trained",
]

#: Loaded when they are used: a trainer needs no query engine, and a command no other room.
_PLACES = {
    "Lake": ("penstock.doors.python", "LakeWithChannels"),
    "PenstockError": ("penstock.core.errors", "PenstockError"),
    "Query": ("penstock.lake.query.lake_query", "LakeQuery"),
    "Recorder": ("penstock.ingest.recorder.recorder", "Recorder"),
    "RemoteLake": ("penstock.doors.python", "RemoteLake"),
    "assign": ("penstock.registry.channels.channel", "assign"),
    "open": ("penstock.doors.python", "open_lake"),
    "read_shard": ("penstock.shards.reader", "read_shard"),
    "trained": ("penstock.registry.checkpoints.digests", "trained"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _PLACES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("penstock")
    except PackageNotFoundError:  # a checkout that was not installed
        return "0"


def __dir__() -> list[str]:
    return sorted(__all__)
