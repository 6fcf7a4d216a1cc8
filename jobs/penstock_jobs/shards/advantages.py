"""Advantages: how much better sessions were than what each is measured against. Pure."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_jobs.shards.name_numbers import in_one
from penstock_jobs.shards.recipe import AdvantageKind

#: How many sessions of all strata weigh as much as one's own stratum does by itself.
SHRINK = 8.0

Values = NDArray[np.float64]
Codes = NDArray[np.int64]


def advantages(chosen: pa.Table, kind: AdvantageKind) -> pa.Array:
    """How much better each session was than what it is measured against, for each row of
    CHOSEN_ROWS, whatever their order.

        group     reward − mean of its group. It is not divided by the deviation: that would blow
                  up the smallest differences where all attempts are about equally good.
        stratum   reward − baseline, for production traffic with one sample a prompt:

                      Σ rewards of the others of its stratum + K · mean of all others
                      ─────────────────────────────────────────────────────────────────
                                  count of the others of its stratum + K

                  The session's own reward is in neither mean. So the baseline does not depend on
                  what the model did in it, and the gradient stays unbiased in the smallest
                  stratum. K = SHRINK steadies small strata with the overall mean.
        none      null.

    All of these count chains: a chain is worth the mean of its sessions, counts once, and is left
    out of its own baseline as a whole. In a group of one the advantage is 0. A session without a
    reward has no advantage and is in no mean; nor has one whose shard has no other session."""
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
    total, count = _sums(worth, np.zeros(len(worth), np.int64))
    totals, counts = _sums(worth, strata)
    own = np.where(known, worth, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        others = count.sum() - known
        overall = (total.sum() - own) / others
    of_stratum = totals[strata] - own
    baselines = (of_stratum + SHRINK * overall) / (counts[strata] - known + SHRINK)
    return np.where(others > 0, baselines, np.nan)


def _means(values: Values, codes: Codes) -> Values:
    totals, counts = _sums(values, codes)
    with np.errstate(invalid="ignore"):
        return totals / counts


def _sums(values: Values, codes: Codes) -> tuple[Values, Values]:
    """Sums and counts of the known values of each code. Numbers are added in their own order, so
    that the order of rows does not change the last bit."""
    count = int(codes.max()) + 1 if len(codes) else 0
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.lexsort((values[known], codes[known]))]
    totals = np.zeros(count)
    np.add.at(totals, codes[order], values[order])
    return totals, np.bincount(codes[order], minlength=count).astype(np.float64)


def _codes(column: pa.ChunkedArray) -> Codes:
    """The same numbers for the same texts; null is a text like any other."""
    encoded = in_one(column)
    if isinstance(encoded, pa.DictionaryArray):
        codes = pc.fill_null(encoded.indices, len(encoded.dictionary))
    else:
        codes = encoded.dictionary_encode(null_encoding="encode").indices
    numbers: Codes = codes.to_numpy().astype(np.int64)
    return numbers
