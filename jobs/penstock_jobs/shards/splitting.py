"""Splitting: which sessions a shard keeps for evaluation. Pure.

What belongs together is never on both sides: a group, a chain, and what the recipe names, a user
or a repository. Where these overlap, all that is linked through them is on one side, by the hash
of the least name of its own and the seed. So a side does not depend on the order of sessions; and
another session changes it for those alone that it links.
"""

from collections.abc import Sequence

import numpy as np
import xxhash

from penstock_jobs.shards.linking import linked

_TRAIN, _EVAL = "train", "eval"


def split(keys: Sequence[Sequence[str | None]], eval_share: float, seed: int) -> list[str]:
    """`train` or `eval` for each session. `keys` are columns over them: the groups, the chains,
    and what else must not be on both sides. None links with nothing."""
    count = len(keys[0])
    ones: list[int] = []
    others: list[int] = []
    for column in keys:
        first: dict[str, int] = {}
        for place, key in enumerate(column):
            if key is not None:
                ones.append(first.setdefault(key, place))
                others.append(place)
    together = linked(count, np.array(ones, np.int64), np.array(others, np.int64))
    names: dict[int, str] = {}
    for place, root in enumerate(together.tolist()):
        name = _name(keys, place)
        names[root] = min(names.get(root, name), name)
    bound = round(eval_share * 2**64)
    sides = {root: _side(name, bound, seed) for root, name in names.items()}
    return [sides[root] for root in together.tolist()]


def _name(keys: Sequence[Sequence[str | None]], place: int) -> str:
    """Of the widest that it belongs to: where a user's new session comes, it joins them."""
    for column in reversed(keys):
        if (key := column[place]) is not None:
            return key
    return ""


def _side(name: str, bound: int, seed: int) -> str:
    drawn = xxhash.xxh3_64_intdigest(f"split:{name}".encode("utf-8", "surrogatepass"), seed % 2**64)
    return _EVAL if drawn < bound else _TRAIN
