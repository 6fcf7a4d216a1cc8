"""Shards as a PyTorch dataset. Only this module imports torch.

dataset = ShardDataset(partial(read_shard, "penstock-data", "sha256:…", rank=0, world=8))
for batch in DataLoader(dataset, batch_size=None):
    …  # batch["state"] is where to resume
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from penstock.core.errors import InvalidInput
from penstock.shards.batches import Batch, Ragged
from penstock.shards.reader import ShardReader

try:
    from torch import from_numpy
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise InvalidInput(what="PyTorch", why="it is not installed: pip install torch") from error


class ShardDataset(IterableDataset):  # type: ignore[misc]  # torch may be absent, and is Any then
    """Yields batches of a reader as dictionaries of tensors; use it with batch_size=None.

    `open_reader` opens the reader in each worker. Worker w of n yields every n-th batch, so the
    sequence is the same for any number of workers. Each decodes everything: more than one only
    helps if processing batches is slow. To resume after a batch, call
    `load_state_dict(batch["state"])`.
    """

    def __init__(self, open_reader: Callable[[], ShardReader]) -> None:
        super().__init__()
        self._open_reader = open_reader
        self._state: Mapping[str, Any] | None = None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next loop resume here, with any number of workers and ranks."""
        with self._open_reader() as reader:
            reader.load_state_dict(state)  # fail here, not in a worker
        self._state = dict(state)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, count = (worker.id, worker.num_workers) if worker else (0, 1)
        with self._open_reader() as reader:
            if self._state is not None:
                reader.load_state_dict(self._state)
            for step, batch in enumerate(reader):
                if step % count == number:
                    yield as_tensors(batch)


def as_tensors(batch: Batch) -> dict[str, Any]:
    """Convert a batch. Texts are lists; lists of numbers become their values, and
    `NAME.offsets`."""
    tensors: dict[str, Any] = {"state": dict(batch.state), "padding": batch.padding}
    for name, column in batch.columns.items():
        if isinstance(column, Ragged):
            tensors[name] = _tensor(column.values)
            tensors[f"{name}.offsets"] = _tensor(column.offsets)
        else:
            tensors[name] = _tensor(column)
    return tensors


def _tensor(values: np.ndarray) -> Any:
    if values.dtype.kind in "OM":  # texts and times
        return values.tolist()
    return from_numpy(values if values.flags.writeable else values.copy())
