"""Advantages: how much better a session was than what it is measured against. Pure.

    group     reward − mean of its group. It is not divided by the deviation: that would blow up
              the smallest differences where all attempts are about equally good.
    stratum   reward − baseline, for production traffic with one sample a prompt:

                  Σ rewards of the others of its stratum + K · mean of all others
                  ─────────────────────────────────────────────────────────────────
                              count of the others of its stratum + K

              The session's own reward is in neither mean. So the baseline does not depend on
              what the model did in it, and the gradient stays unbiased in the smallest stratum.
              K = SHRINK steadies small strata with the overall mean.
    none      null.

All of these count chains: a chain is worth the mean of its sessions, counts once, and is left out
of its own baseline as a whole. In a group of one the advantage is 0. A session without a reward has
no advantage and is in no mean; nor has one whose shard has no other session.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_jobs.shards.recipe import AdvantageKind

#: How many sessions of all strata weigh as much as one's own stratum does by itself.
SHRINK = 8.0

Values = NDArray[np.float64]
Codes = NDArray[np.int64]


def advantages(chosen: pa.Table, kind: AdvantageKind) -> pa.Array:
    """For each row of CHOSEN_ROWS. It does not depend on their order."""
    if kind == "none":
        return pa.nulls(chosen.num_rows, pa.float64())
    rewards = np.asarray(chosen["reward"].to_numpy(zero_copy_only=False), np.float64)
    chains = _codes(chosen["chain"])
    worth = _means(rewards, chains, _count(chains))
    if kind == "group":
        groups = _of_chains(_codes(chosen["group_id"]), chains)
        baseline = _means(worth, groups, _count(groups))[groups]
    else:
        baseline = _baselines(worth, _of_chains(_codes(chosen["stratum"]), chains))
    return pa.array(rewards - baseline[chains], from_pandas=True)


def alone(chosen: pa.Table) -> int:
    """How many groups have one piece of work: their advantage is 0 by definition."""
    pairs = chosen.group_by("group_id").aggregate([("chain", "count_distinct")])
    return int(np.count_nonzero(pairs["chain_count_distinct"].to_numpy() == 1))


def _baselines(worth: Values, strata: Codes) -> Values:
    known = ~np.isnan(worth)
    total, count = _sums(worth, np.zeros(len(worth), np.int64), 1)
    totals, counts = _sums(worth, strata, _count(strata))
    own = np.where(known, worth, 0.0)
    others = count[0] - known
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = (total[0] - own) / others
    of_stratum = totals[strata] - own
    found = (of_stratum + SHRINK * overall) / (counts[strata] - known + SHRINK)
    return np.where(others > 0, found, np.nan)


def _means(values: Values, codes: Codes, count: int) -> Values:
    totals, counts = _sums(values, codes, count)
    with np.errstate(invalid="ignore"):
        return totals / counts


def _sums(values: Values, codes: Codes, count: int) -> tuple[Values, Values]:
    """Sums and counts of those that are known. Numbers are added in their own order, so that the
    order of rows does not change the last bit."""
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.lexsort((values[known], codes[known]))]
    totals = np.zeros(count)
    np.add.at(totals, codes[order], values[order])
    return totals, np.bincount(codes[order], minlength=count).astype(np.float64)


def _codes(column: pa.ChunkedArray) -> Codes:
    """The same numbers for the same texts in any order; null is a text like any other."""
    texts = ["" if text is None else f"={text}" for text in column.to_pylist()]
    _, codes = np.unique(np.array(texts, object), return_inverse=True)
    return codes.astype(np.int64)


def _count(codes: Codes) -> int:
    return int(codes.max()) + 1 if len(codes) else 0


def _of_chains(codes: Codes, chains: Codes) -> Codes:
    """That of each chain: its sessions have the same."""
    found = np.zeros(_count(chains), np.int64)
    found[chains] = codes
    return found
