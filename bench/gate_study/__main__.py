"""Runs the studies of the gate's truth. Exit 1 where one errs more often than it may."""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module

from penstock.backends.terminal.output import say

#: By name, the module whose `study(samples, seed)` prints its tables and says whether all is well.
STUDIES = {
    "paired": "bench.gate_study.paired",
    "missing": "bench.gate_study.missing",
    "costs": "bench.gate_study.costs",
    "adaptive": "bench.gate_study.adaptive",
    "sequential": "bench.gate_study.sequential",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gate_study", description=__doc__)
    parser.add_argument("studies", nargs="*", help=f"of {', '.join(STUDIES)}; all by default")
    parser.add_argument("--samples", type=int, default=4_000, help="for each case")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    if unknown := set(options.studies) - set(STUDIES):
        parser.error(f"there is no study {', '.join(sorted(unknown))}")
    well = True
    for name in options.studies or STUDIES:
        say(f"# {name}")
        study: Callable[[int, int], bool] = import_module(STUDIES[name]).study
        well = study(options.samples, options.seed) and well
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
