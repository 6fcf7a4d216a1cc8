"""Deals the micro batches of an export out to the ranks of prime-rl's trainer: each reads a file of
its own in each step, and all have as many as each other. What is missing for that are copies of
which nothing is trained.

    python3 prime_rl_ranks.py EXPORT RUN RANKS
"""

import shutil
import sys
from pathlib import Path

import msgspec

#: Where they stand in a micro batch.
MASK, ADVANTAGES, WEIGHTS = 1, 2, 13


def untrained(batch):
    fields = msgspec.msgpack.decode(batch)
    fields[MASK] = [False] * len(fields[MASK])
    fields[ADVANTAGES] = [0.0] * len(fields[ADVANTAGES])
    fields[WEIGHTS] = None
    return msgspec.Raw(msgspec.msgpack.encode(fields))


export, run, ranks = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
found = list(export.glob("batches/step_*"))
if not found:
    sys.exit(f"There is nothing to train in {export}: is it an export for prime-rl?")
shutil.rmtree(run / "batches", ignore_errors=True)
for step in found:
    content = (step / "rank_0.bin").read_bytes()
    batches = sorted(msgspec.msgpack.decode(content, type=list[msgspec.Raw]), key=len)
    batches += [untrained(batches[0])] * (-len(batches) % ranks)
    into = run / "batches" / step.name
    into.mkdir(parents=True)
    for rank in range(ranks):
        content = msgspec.msgpack.encode(batches[rank::ranks])
        (into / f"rank_{rank}.bin").write_bytes(content)
