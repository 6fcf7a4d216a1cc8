"""The rooms of the jobs."""

from penstock_jobs.benchmarks.room import ROOM as BENCHMARKS
from penstock_jobs.importers.room import ROOM as IMPORTERS
from penstock_jobs.loop.room import ROOM as LOOP
from penstock_jobs.rewards.room import ROOM as REWARDS
from penstock_jobs.sessions.room import ROOM as SESSIONS
from penstock_jobs.shards.room import ROOM as SHARDS
from penstock_jobs.simulator.room import ROOM as SIMULATOR

ROOMS = [REWARDS, SHARDS, BENCHMARKS, IMPORTERS, LOOP, SESSIONS, SIMULATOR]
