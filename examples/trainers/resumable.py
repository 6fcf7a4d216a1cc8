"""A trainer that may be killed at any moment and makes the same checkpoint as one that never was.

It reads the shard with `penstock.read_shard`. What it has learned and where it was in the shard are
one file, which is replaced whole: there is never the one without the other. A real trainer saves
its optimizer there too, and as often as it can afford to do a step again.

    [trainer]
    command = "python3 {here}/../trainers/resumable.py"

The model is as small as can be: how often each token is wanted, weighed by advantage and mask.
"""

import json
import os
from pathlib import Path

import numpy as np

import penstock

told = os.environ
snapshot = Path(told["PENSTOCK_WORK"], "snapshot.npz")
#: A snapshot of something else says nothing here.
about = json.dumps([told["PENSTOCK_SHARD"], told["PENSTOCK_PARENT_DIGEST"]])


def load():
    try:
        with np.load(snapshot) as found:
            if str(found["about"]) == about:
                return found["weights"], json.loads(str(found["reader"]))
    except FileNotFoundError:
        pass
    return np.zeros(256), None


def save(weights, state):
    part = snapshot.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, about=about, weights=weights, reader=json.dumps(state))
        file.flush()
        os.fsync(file.fileno())
    part.rename(snapshot)


weights, place = load()
with penstock.read_shard(
    told["PENSTOCK_DATA"], told["PENSTOCK_SHARD"], seed=7, batch_samples=2
) as reader:
    if place is not None:
        reader.load_state_dict(place)
    for batch in reader:
        advantages = np.nan_to_num(np.asarray(batch["advantage"], dtype=float), nan=1.0)
        for ids, mask, advantage in zip(
            batch["input_ids"], batch["loss_mask"], advantages, strict=True
        ):
            trained = np.asarray(ids)[np.asarray(mask) != 0] % len(weights)
            np.add.at(weights, trained, 0.01 * advantage)
        save(weights, batch.state)

made = Path(told["PENSTOCK_OUTPUT"], "weights.npy")
np.save(made, weights)
penstock.trained(made)
