"""How many small faults the tests find: `make mutation`.

Each of five central modules is changed in one place, its tests run, and the change taken back. A
change that no test notices is printed. Samples are the same for a seed and a file.
"""

import argparse
import ast
import copy
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_SECONDS_MAX_FACTOR = 6.0
_MODULES = Path(__file__).parent / "mutation.json"
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
Mutation = Callable[[ast.AST], None]


def mutations(node: ast.AST) -> Iterator[tuple[str, Mutation]]:
    """What can be changed at one place of the syntax tree."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            other = _COMPARISONS[type(operator)]

            def compare(place: ast.AST) -> None:
                assert isinstance(place, ast.Compare)
                place.ops = [other()]

            yield f"{type(operator).__name__} becomes {other.__name__}", compare
        case ast.BoolOp():

            def connect(place: ast.AST) -> None:
                assert isinstance(place, ast.BoolOp)
                place.op = ast.Or() if isinstance(place.op, ast.And) else ast.And()

            yield "and and or change places", connect
        case ast.Constant(value=bool()):

            def negate(place: ast.AST) -> None:
                assert isinstance(place, ast.Constant)
                place.value = not place.value

            yield "a truth value is turned round", negate
        case ast.Constant(value=int()):

            def count(place: ast.AST) -> None:
                assert isinstance(place, ast.Constant)
                assert isinstance(place.value, int)
                place.value += 1

            yield "a number grows by one", count
        case ast.BinOp(op=ast.Add() | ast.Sub()):

            def calculate(place: ast.AST) -> None:
                assert isinstance(place, ast.BinOp)
                place.op = ast.Sub() if isinstance(place.op, ast.Add) else ast.Add()

            yield "plus and minus change places", calculate
        case ast.If():

            def turn(place: ast.AST) -> None:
                assert isinstance(place, ast.If)
                place.test = ast.UnaryOp(ast.Not(), place.test)

            yield "a condition is turned round", turn
        case ast.Return(value=ast.expr()):

            def drop_value(place: ast.AST) -> None:
                assert isinstance(place, ast.Return)
                place.value = ast.Constant(None)

            yield "None is returned", drop_value
        case ast.Expr(value=ast.Call()):

            def drop_call(place: ast.AST) -> None:
                assert isinstance(place, ast.Expr)
                place.value = ast.Constant(None)

            yield "a call is left out", drop_call


def mutants(source: str) -> list[tuple[int, str, str]]:
    """The line, the description and the text of each possible change of a module."""
    tree = ast.parse(source)
    made = []
    for number, node in enumerate(ast.walk(tree)):
        for index, (description, _) in enumerate(mutations(node)):
            changed = copy.deepcopy(tree)
            place = next(p for n, p in enumerate(ast.walk(changed)) if n == number)
            list(mutations(place))[index][1](place)
            made.append((getattr(node, "lineno", 0), description, ast.unparse(changed)))
    return made


def passes(tests: list[str], seconds_max: float) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:randomly", *tests]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def kill_rate(module: Path, tests: list[str], samples: int, seed: int) -> tuple[int, int]:
    """How many changes the tests noticed, of how many."""
    source = module.read_text()
    begun = time.monotonic()
    if not passes(tests, 3600):
        raise SystemExit(f"the tests of {module} fail as it is")
    seconds_max = 10 + _SECONDS_MAX_FACTOR * (time.monotonic() - begun)
    possible = mutants(source)
    chosen = random.Random(seed).sample(possible, min(samples, len(possible)))
    killed = 0
    try:
        for line, description, text in chosen:
            module.write_text(text)
            if passes(tests, seconds_max):
                print(f"  {module}:{line}: no test notices that {description}", flush=True)
            else:
                killed += 1
    finally:
        module.write_text(source)
    return killed, len(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--modules", type=Path, default=_MODULES)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name, (module, tests) in json.loads(options.modules.read_text()).items():
        if options.only in name:
            killed, all_ = kill_rate(Path(module), tests, options.samples, options.seed)
            print(f"{name}: {killed} of {all_} changes noticed ({killed / all_:.0%})", flush=True)


if __name__ == "__main__":
    main()
