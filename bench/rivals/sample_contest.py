"""Loading long samples: Penstock, a raw scan, litdata and mosaicml-streaming."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.figures import Figure, Goal, spread
from bench.loader import make_shard
from bench.measurement import Measurement, Size
from bench.rivals.contest import Contender, Rounds, ratios, running_contest

_TOKENS = 80_000_000
_LENGTH = 16_384
_BATCH = 16
_OURS, _SCAN = "Penstock", "raw scan"
_AGAINST_SCAN = Goal(what=f"{_OURS} against a raw scan", at_least=1, unit=" ×")
_RAW = "litdata raw"
_IN_ORDER = Goal(what=f"{_OURS} against {_RAW}, in order", at_least=1, unit=" ×")
_SHUFFLED = Goal(what=f"{_OURS} against {_RAW}, shuffled", at_least=10, unit=" ×")
_LITDATA = "bench.rivals.litdata_samples"
#: Name, module, package, and what is said to its writer.
_RIVALS: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
    (_RAW, _LITDATA, "litdata", {"compression": None}),
    ("litdata compressed", _LITDATA, "litdata", {"compression": "zstd"}),
    ("mosaicml-streaming", "bench.rivals.mosaic_samples", "streaming", {}),
)


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    shard = make_shard(here / "shard", _LENGTH, size.of(_TOKENS, 20 * _LENGTH))
    parts = [str(path) for path in shard.paths()]
    common: dict[str, Any] = {"parts": parts, "length": _LENGTH, "batch": _BATCH}
    ours = common | {"data": str(shard.data), "shard": shard.manifest.id}
    contenders = [
        Contender(_OURS, "bench.rivals.penstock_samples", ours),
        Contender(_SCAN, "bench.rivals.scan_samples", common),
    ]
    for name, module, package, facts in _RIVALS:
        question = {**common, **facts, "folder": str(here / name.replace(" ", "-"))}
        contenders.append(Contender(name, module, question, package))
    with shard.reader(column_copies=True) as reader:
        _ = [len(batch) for batch in reader]  # which makes the copies
    with running_contest(contenders) as contest:
        for name, *_ in _RIVALS:
            contest.write(name)
        for shuffle, order, goal in ((False, "in order", _IN_ORDER), (True, "shuffled", _SHUFFLED)):
            yield from _compared(contest.take_turns(size.rounds, shuffle=shuffle), order, goal)
        yield from contest.absent()


def _compared(rounds: Mapping[str, Rounds], order: str, raw: Goal) -> Iterator[Figure]:
    ours = rounds[_OURS]
    for name, taken in rounds.items():
        each = [1000 * one.cpu_s / one.units for one in taken.spent]
        value = f"{spread(taken.per_second)}; CPU of each {spread(each, ' ms')}"
        yield Figure(f"{name}, {order}: samples per second", value)
    for name, taken in rounds.items():
        against = ratios(ours.per_second, taken.per_second)
        if name == _SCAN:
            yield _AGAINST_SCAN.figure_of_rounds(against, order)
        elif name == _RAW:
            yield raw.figure_of_rounds(against)
        elif name != _OURS:
            yield Figure(f"{_OURS} against {name}, {order}", spread(against, " ×"))


MEASUREMENT = Measurement(
    name="rivals-samples",
    title="Beside others: loading long samples",
    about="""
Samples of 16,384 tokens (ids, mask, log-probabilities) of one shard: by the loader with column
copies, by a raw pyarrow scan of its Parquet, and by
[litdata](https://github.com/Lightning-AI/litData) and
[mosaicml-streaming](https://github.com/mosaicml/streaming) from files that each wrote in its own
format before; in one process without workers, in order and shuffled. The loader's column copies are
made before, too. Each process has read all once before. Ratios are of seconds by
the clock; rounds in turns: the median, and from the least to the most.
""",
    goals=(_AGAINST_SCAN, _IN_ORDER, _SHUFFLED),
    run=_measure,
)
