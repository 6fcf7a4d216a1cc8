"""Every function and operator that a query may name, with every kind of argument, run in child
processes: what ends one, and what the guard says of it.

`python -m tests.support.lake.sql_fuzz PART PARTS` prints a finding a line, as JSON, and at last how
much it tried. With `--write` it writes engine_faults.txt.
"""

import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from penstock.lake import QueryRefused
from penstock.lake.query.guard import check_query

FAULTS = Path(__file__).with_name("engine_faults.txt")
_NAMES = [
    *files("penstock.lake.query").joinpath("functions.txt").read_text("utf-8").split(),
    # They were allowed until this found what they do.
    "array_resize", "json_contains", "list_resize",
]  # fmt: skip
_TABLE_FUNCTIONS = ("range", "generate_series", "unnest", "json_each", "json_tree", "repeat")
#: As long as the guard's limit for one statement, and longer, made at run time.
_DEEP = "repeat('[', 200000) || repeat(']', 200000)"
_VALUES = [
    "NULL", "1", "-1", "1.5", "9223372036854775807", "'a'", "''", "'{\"a\":[1]}'", "[1,2]", "[]",
    "['a',NULL]", "{'a':1}", "MAP{'a':1}", "TRUE", "DATE '2020-01-01'", "INTERVAL 1 MONTH",
    "TIMESTAMPTZ '2020-01-01 00:00:00Z'", "'\\x00'::BLOB", "'101'::BIT", "1::UBIGINT", "'1'::JSON",
    "'nan'::DOUBLE", "(lambda x: x)", "1::HUGEINT", "uuid()", "[{'a':[1]}]", "ROW(1,2)",
    "[1,2]::INT[2]", "'infinity'::TIMESTAMP", "TIME '10:00:00'", "1::VARIANT", "1.5::DECIMAL(38,4)",
    "'a'::ENUM('a','b')", "union_value(a := 1)", "123::BIGNUM", "[[NULL]]", "{'a':{'b':NULL}}",
    "i", "s", "l", "st", "j", "ts",
]  # fmt: skip
_TYPES = [
    "BOOLEAN", "TINYINT", "UTINYINT", "BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM", "FLOAT",
    "DOUBLE", "DECIMAL(4,2)", "DECIMAL(38,37)", "VARCHAR", "BLOB", "BIT", "UUID", "JSON", "VARIANT",
    "DATE", "TIME", "TIMETZ", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_NS", "TIMESTAMPTZ", "INTERVAL",
    "INT[]", "VARCHAR[][]", "INT[2]", "STRUCT(a INT)", "STRUCT(a INT[], b VARCHAR)",
    "MAP(VARCHAR, INT)", "MAP(INT[], STRUCT(a INT))", "UNION(a INT, b VARCHAR)", "ENUM('a', 'b')",
]  # fmt: skip
_TABLE = """
CREATE TABLE t AS SELECT unnest([1, 2, NULL]) i, unnest(['a', '{}', NULL]) s,
  unnest([[1], [], NULL]) l, unnest([{'a': 1}, {'a': 2}, NULL]) st,
  unnest(['1'::JSON, '[]'::JSON, NULL]) j, unnest([timestamptz '2020-01-01 00:00:00Z', NULL]) ts
"""
#: One statement may take so long; then it is ended, and that is no finding.
_SECONDS_MAX = 3
_MEMORY_BYTES_MAX = 4 << 30


def statements() -> Iterator[str]:
    """The same at each run."""
    chance = random.Random(1)
    for name in _NAMES:
        yield from _calls(name, chance)
        if not name.isidentifier():
            yield from _operations(name)
    for value, kind in itertools.product(_VALUES, _TYPES):
        yield f"SELECT ({value})::{kind} FROM t"
        yield f"SELECT TRY_CAST([{value}] AS {kind}[]) FROM t"
    for name in _TABLE_FUNCTIONS:
        for first, second in itertools.product(_VALUES, [*_VALUES, ""]):
            if "(lambda" not in first and not first.isalpha():
                yield f"SELECT * FROM {name}({first}{', ' if second else ''}{second}) LIMIT 9"


def _calls(name: str, chance: random.Random) -> Iterator[str]:
    call = f'"{name}"' if not name.isidentifier() else name
    yield f"SELECT {call}() FROM t"
    yield f"SELECT {call}(*) FROM t"
    for value in (*_VALUES, _DEEP):
        yield f"SELECT {call}({value}) FROM t"
    pairs = list(itertools.product(_VALUES, _VALUES))
    for first, second in chance.sample(pairs, 300):
        yield f"SELECT {call}({first}, {second}) FROM t"
    for _ in range(40):
        yield f"SELECT {call}({', '.join(chance.choices(_VALUES, k=3))}) FROM t"
    for _ in range(10):
        yield f"SELECT {call}({', '.join(chance.choices(_VALUES, k=chance.randint(4, 7)))}) FROM t"
    for column, value in itertools.product(("i", "s", "l"), ("", ", 1", ", 'a'", ", [0.5]")):
        yield f"SELECT {call}({column}{value}) OVER (ORDER BY i ROWS 1 PRECEDING) FROM t"
        yield f"SELECT {call}(DISTINCT {column}{value}) FROM t"
        yield f"SELECT {call}({column}{value} ORDER BY s) FILTER (i > 1) FROM t GROUP BY i"
    for second in ("'a'", "1", "'$'", "'$[*]'", _DEEP):
        yield f"SELECT {call}({_DEEP}, {second}) FROM t"


def _operations(name: str) -> Iterator[str]:
    for left, right in itertools.product(_VALUES, _VALUES):
        yield f"SELECT ({left}) {name} ({right}) FROM t"
    for value in _VALUES:
        yield f"SELECT {name} ({value}) FROM t"
        yield f"SELECT ({value}) {name} FROM t"
        yield f"SELECT 1 {name} ANY ([{value}]) FROM t"
    yield f"SELECT ({_DEEP}) {name} ({_DEEP}) FROM t"


def _open() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1, "async_threads": 0, "memory_limit": "512MB"})
    connection.execute(_TABLE)
    connection.execute("SET enable_external_access = false")
    return connection


def _is_allowed(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    try:
        check_query(connection, sql, frozenset({"t"}))
    except QueryRefused:
        return False
    return True


def _run(texts: list[str], first: int, report: int) -> None:
    """In a child: each statement from the first on, saying which before it begins."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    connection = _open()
    for number in range(first, len(texts)):
        os.write(report, b"%d\n" % number)
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_MAX)
        try:
            connection.execute(texts[number]).fetchmany(10)
        except MemoryError:
            pass
        except (duckdb.InternalError, duckdb.FatalException):
            os.write(report, b"I%d\n" % number)
            connection = _open()
        except Exception:  # noqa: BLE001  # an error is an answer
            pass
    os._exit(0)


def _findings(texts: list[str]) -> Iterator[tuple[str, str]]:
    """What ended a child, or failed inside the engine, and how."""
    first = 0
    while first < len(texts):
        reading, report = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run(texts, first, report)
        os.close(report)
        with os.fdopen(reading, encoding="ascii") as lines:
            for line in lines:
                if line.startswith("I"):
                    yield "internal", texts[int(line[1:])]
                else:
                    first = int(line) + 1
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0:
            return
        if status != -signal.SIGALRM:
            yield signal.Signals(-status).name, texts[first - 1]


def faults(part: int, parts: int) -> Iterator[dict[str, Any]]:
    """Of this part of the statements."""
    texts = list(dict.fromkeys(statements()))[part::parts]
    found = list(_findings(texts))
    connection = _open()
    for how, sql in found:
        yield {"how": how, "allowed": _is_allowed(connection, sql), "sql": sql}
    yield {"tried": len(texts)}


def run_parts(parts: int) -> list[dict[str, Any]]:
    """Each in a process of its own."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(part), str(parts)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for part in range(parts)
    ]
    lines = [line for process in processes for line in process.communicate()[0].splitlines()]
    return [json.loads(line) for line in lines]


def listed_faults() -> list[str]:
    """The statements of the list."""
    lines = FAULTS.read_text(encoding="utf-8").splitlines()
    return [line.partition(" ")[2] for line in lines if not line.startswith("#")]


def called(sql: str) -> str:
    """What the statement calls, or casts to."""
    return sql.removeprefix("SELECT ").partition("(")[0]


def _write() -> None:
    """At most four of each call and kind of fault."""
    found = [fault for fault in run_parts(os.cpu_count() or 1) if "sql" in fault]
    lines = sorted(f"{fault['how']} {fault['sql']}\n" for fault in found)
    kept = [f"# What ends a process of DuckDB {duckdb.__version__}, or fails inside it.\n"]
    for _, group in itertools.groupby(lines, lambda line: line.partition("(")[0]):
        kept += itertools.islice(group, 4)
    FAULTS.write_text("".join(kept), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        _write()
    else:
        for fault in faults(int(sys.argv[1]), int(sys.argv[2])):
            sys.stdout.write(json.dumps(fault) + "\n")
