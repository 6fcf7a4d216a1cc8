"""What readers give out, as the ids of samples."""

import json
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from penstock.shards.batches import Batch
from penstock.shards.reader import ShardReader


def ids(batch: Batch) -> list[str]:
    """None for padding, which is no sample."""
    return [] if batch.padding else batch["sample_id"].tolist()


def batches(reader: ShardReader, most: int | None = None) -> list[list[str]]:
    with reader:
        return [ids(batch) for batch in islice(reader, most)]


def sequence(reader: ShardReader) -> list[str]:
    return flat(batches(reader))


def flat(found: Iterable[Iterable[str]]) -> list[str]:
    return [*chain.from_iterable(found)]


def kept(state: Any) -> Any:
    """A state as it comes back from a file."""
    return json.loads(json.dumps(state))
