"""Advantages: how much better sessions were than what each is measured against. Pure."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_jobs.shards.recipe import AdvantageKind
from penstock_jobs.shards.selection.dictionary_codes import in_one

#: How many sessions of all strata weigh as much as one's own stratum does by itself.
SHRINK = 8.0

Values = NDArray[np.float64]
Codes = NDArray[np.int64]


def advantages(chosen: pa.Table, kind: AdvantageKind) -> pa.Array:
    """Say how much better each session of CHOSEN_ROWS was than what it is measured against.

    A group counts by its mean, undivided by the deviation, which would blow up the smallest
    differences. A stratum counts by

        (Σ rewards of its others + SHRINK · mean of all others) / (count of its others + SHRINK)

    A session's own reward is in neither mean, so the gradient stays unbiased in the smallest
    stratum. A chain is worth the mean of its sessions, counts once, and is left out of its own
    baseline as a whole. A session without a reward, or without any other, has no advantage."""
    if kind == "none":
        return pa.nulls(chosen.num_rows, pa.float64())
    rewards = np.asarray(chosen["reward"].to_numpy(zero_copy_only=False), np.float64)
    chains = _codes(chosen["chain"])
    worth = _means(rewards, chains)
    # The group or stratum of each chain: its sessions have the same.
    parents = np.zeros(len(worth), np.int64)
    parents[chains] = _codes(chosen["group_id" if kind == "group" else "stratum"])
    baselines = _means(worth, parents)[parents] if kind == "group" else _baselines(worth, parents)
    return pa.array(rewards - baselines[chains], from_pandas=True)


def _baselines(worth: Values, strata: Codes) -> Values:
    known = ~np.isnan(worth)
    totals, counts = _sums(worth, strata)
    own = np.where(known, worth, 0.0)
    others = known.sum() - known
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = (totals.sum() - own) / others
    of_stratum = totals[strata] - own
    baselines = (of_stratum + SHRINK * overall) / (counts[strata] - known + SHRINK)
    return np.where(others > 0, baselines, np.nan)


def _means(values: Values, codes: Codes) -> Values:
    totals, counts = _sums(values, codes)
    with np.errstate(invalid="ignore"):
        return totals / counts


def _sums(values: Values, codes: Codes) -> tuple[Values, Values]:
    """Add up and count the known values of each code."""
    known, count = ~np.isnan(values), int(codes.max(initial=-1)) + 1
    totals = np.bincount(codes[known], values[known], count).astype(np.float64)
    return totals, np.bincount(codes[known], minlength=count).astype(np.float64)


def _codes(column: pa.ChunkedArray) -> Codes:
    """Number the texts; null is one like any other."""
    codes = in_one(column.cast(pa.string())).dictionary_encode(null_encoding="encode").indices
    numbers: Codes = codes.to_numpy().astype(np.int64)
    return numbers
