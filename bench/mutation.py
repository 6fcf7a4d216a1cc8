"""How many small faults the tests find: `make mutation`.

Each of five central modules is changed in one place, its tests run, and the change taken back. A
change that no test notices is printed. Samples are the same for a seed and a file.
"""

import argparse
import ast
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
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


def changes(node: ast.AST) -> Iterator[tuple[str, dict[str, object]]]:
    """What can be changed at one place of the syntax tree: a description, and the new fields."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            other = _COMPARISONS[type(operator)]
            yield f"{type(operator).__name__} becomes {other.__name__}", {"ops": [other()]}
        case ast.BoolOp(op=operator):
            opposite = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and and or change places", {"op": opposite}
        case ast.Constant(value=bool(value)):
            yield "a truth value is turned round", {"value": not value}
        case ast.Constant(value=int(value)):
            yield "a number grows by one", {"value": value + 1}
        case ast.BinOp(op=ast.Add() | ast.Sub() as operator):
            inverse = ast.Sub() if isinstance(operator, ast.Add) else ast.Add()
            yield "plus and minus change places", {"op": inverse}
        case ast.If(test=test):
            yield "a condition is turned round", {"test": ast.UnaryOp(ast.Not(), test)}
        case ast.Return(value=ast.expr()):
            yield "None is returned", {"value": ast.Constant(None)}
        case ast.Expr(value=ast.Call()):
            yield "a call is left out", {"value": ast.Constant(None)}


def mutants(source: str) -> list[tuple[int, str, str]]:
    """The line, the description and the text of each possible change of a module."""
    tree = ast.parse(source)
    made = []
    for node in list(ast.walk(tree)):
        for description, fields in changes(node):
            before = {name: getattr(node, name) for name in fields}
            vars(node).update(fields)
            made.append((getattr(node, "lineno", 0), description, ast.unparse(tree)))
            vars(node).update(before)
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
