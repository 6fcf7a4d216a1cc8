"""Penstock: trajectories of coding agents, from production to training and back.

import penstock
lake = penstock.open("penstock-data")
lake.query("select type, count(*) from events group by all").arrow()
"""

from importlib.metadata import PackageNotFoundError, version

from penstock.channels.channel import assign
from penstock.checkpoints.trainer_answer import trained
from penstock.errors import PenstockError
from penstock.lake.lake import LakeQuery as Query
from penstock.python_api import LakeWithChannels as Lake
from penstock.python_api import open_lake as open
from penstock.shards.reader import read_shard

try:
    __version__ = version("penstock")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0"

__all__ = [
    "Lake",
    "PenstockError",
    "Query",
    "__version__",
    "assign",
    "open",
    "read_shard",
    "trained",
]
