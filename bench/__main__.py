"""Measures, compares with the goals, and exits 1 when one is missed. Names choose measurements;
`quick` takes those that need a few seconds, at a small size."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.catalogue import MEASUREMENTS
from bench.figures import show
from bench.measurement import QUICK, WHOLE, Measurement, NotMeasured, Size
from bench.numbers import write_page
from bench.results import MachineWatch, Result, read_results, write_results
from penstock.backends.terminal.output import say, show_table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help="of measurements, and `quick`; all without one")
    parser.add_argument("--list", action="store_true", help="what there is, and its goals")
    parser.add_argument(
        "--write", action="store_true", help="put the figures into bench/results.json"
    )
    options = parser.parse_args()
    if options.list:
        _show_list()
        return
    size, chosen = _chosen(options.names, parser)
    results = []
    for result in _measured(size, chosen):
        results.append(result)
        if options.write:
            write_results(read_results() | {result.name: result})
            write_page()
    sys.exit(1 if _tell_missed(results) else 0)


def _show_list() -> None:
    rows = [
        [
            one.name,
            "quick" if one.quick else "",
            one.title,
            "; ".join(f"{goal.what.strip()} {goal}" for goal in one.goals),
        ]
        for one in MEASUREMENTS.values()
    ]
    show_table(["name", "", "measures", "goals"], rows)


def _chosen(
    names: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[Size, list[Measurement]]:
    unknown = set(names) - set(MEASUREMENTS) - {QUICK.name}
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; --list shows what there is")
    size = QUICK if QUICK.name in names else WHOLE
    named = [MEASUREMENTS[name] for name in names if name != QUICK.name]
    return size, named or [one for one in MEASUREMENTS.values() if one.quick or size is WHOLE]


def _measured(size: Size, chosen: Sequence[Measurement]) -> Iterator[Result]:
    """Each in a folder of its own, which goes before the next begins."""
    for one in chosen:
        say(f"measuring {one.name}")
        watch = MachineWatch()
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            try:
                figures = tuple(one.run(size, Path(folder)))
            except NotMeasured as error:
                say(f"not measured: {error}")
                continue
        show(figures)
        yield Result(name=one.name, size=size.name, machine=watch.seen(), figures=figures)


def _tell_missed(results: Sequence[Result]) -> bool:
    missed = [
        f"{result.name}: {figure.what.strip()} {figure.value}, goal {figure.goal}"
        for result in results
        for figure in result.figures
        if not figure.reached
    ]
    absent = [
        f"{result.name}: {goal.what.strip()} {goal}"
        for result in results
        for goal in MEASUREMENTS[result.name].goals
        if not any(figure.what.startswith(goal.what) for figure in result.figures)
    ]
    for what, lines in (("goals missed", missed), ("goals that nothing was measured for", absent)):
        say(f"{what}: {len(lines) or 'none'}")
        for line in lines:
            say(f"  {line}")
    return bool(missed)


if __name__ == "__main__":
    main()
