"""The guard, which decides whether a user's text may run as a query.

It reads the syntax tree and lets through one SELECT over named relations and known functions. The
second wall is the connection, which opens nothing but segments of the lake. Each must hold alone.
"""

import json
from importlib.resources import files
from itertools import accumulate
from typing import Any

import duckdb

from penstock.lake import QueryRefused

SQL_LENGTH_MAX = 200_000

_Node = dict[str, Any]
_Names = frozenset[str]


def _words(text: str) -> _Names:
    return frozenset(text.split())


# Nodes without a class: statements, what FROM holds, and what stands behind it.
_STRUCTURE = _words(
    """
    BASE_TABLE DISTINCT_MODIFIER EMPTY EXPRESSION_LIST JOIN LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER
    ASCENDING DESCENDING ORDER_DEFAULT ORDER_MODIFIER PIVOT RECURSIVE_CTE_NODE
    SELECT_NODE SET_OPERATION_NODE SHOW_REF SUBQUERY TABLE_FUNCTION
    """
)

# Classes of expressions. PARAMETER is left out: nothing binds one.
_EXPRESSIONS = _words(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT DEFAULT FUNCTION LAMBDA
    LAMBDA_REF OPERATOR POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)

# Types by name. Left out are those whose casts fail inside the engine, and those of extensions.
_TYPES = _words(
    """
    array bigint binary bit bitstring blob bool boolean bpchar bytea char date datetime dec decimal
    double enum float float4 float8 guid hugeint int int1 int128 int16 int2 int32 int4 int64 int8
    integer integral interval json list logical long map null numeric nvarchar oid real row short
    signed smallint string struct text time time_ns timestamp timestamp_ms timestamp_ns timestamp_s
    timestamp_us timestamptz timestamptz_ns timetz tinyint tuple ubigint uhugeint uint128 uint16
    uint32 uint64 uint8 uinteger union usmallint utinyint uuid varbinary varchar variant
    """
) | {"time with time zone", "timestamp with time zone"}

#: How deep types may be nested. The engine goes down them by recursion, and has no limit.
TYPE_DEPTH_MAX = 32
#: Functions that take a type as JSON.
_BY_STRUCTURE = _words("from_json from_json_strict json_transform json_transform_strict")

_TABLE_FUNCTIONS = frozenset(
    {"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"}
)

# Pure functions of their arguments, and the clock and the dice. All else is refused: what reads
# settings, files, the catalogue or other queries, what sleeps or logs, what a later DuckDB brings.
_FUNCTIONS_FILE = files("penstock.lake.query").joinpath("functions.txt")
_FUNCTIONS = _words(_FUNCTIONS_FILE.read_text(encoding="utf-8").lower())

#: The kind of the parser's error for everything but a SELECT, and what we say about it.
_UNSUPPORTED = "not implemented"
_NOT_A_SELECT = (
    "a query is exactly one SELECT (or WITH, VALUES, FROM, DESCRIBE, SUMMARIZE, SHOW TABLES) "
    "without parameters of mixed kinds; nothing can be written or set. Statements of the form "
    "EXPLAIN and PIVOT … ON … are not supported either: for the latter write SELECT … FROM view "
    "PIVOT (… FOR … IN (…)), or sum(…) FILTER (WHERE …)"
)


def check_query(
    connection: duckdb.DuckDBPyConnection, sql: str, relations: frozenset[str]
) -> frozenset[str]:
    """Find the relations that `sql` reads. Raises QueryRefused unless it is one SELECT that reads
    only `relations`.

    Pass the idle connection that will run the query: one parser reads the text both times.
    """
    walk = _Walk(frozenset(_fold(name) for name in relations))
    try:
        walk.visit(_parse(connection, sql), frozenset())
    except RecursionError:
        raise QueryRefused(why="it is nested too deeply") from None
    return frozenset(name for name in relations if _fold(name) in walk.read)


def _parse(connection: duckdb.DuckDBPyConnection, sql: str) -> _Node:
    if len(sql) > SQL_LENGTH_MAX:
        raise QueryRefused(why=f"it is longer than {SQL_LENGTH_MAX:,} characters")
    # The parser would stop at a NUL, and the runner go on behind it.
    if "\0" in sql:
        raise QueryRefused(why="it contains a NUL character")
    try:
        rows = connection.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [sql]).fetchall()
        answer = json.loads(rows[0][0])
    except (duckdb.DataError, duckdb.ProgrammingError, RecursionError, ValueError) as error:
        raise QueryRefused(why=f"it cannot be parsed ({error})") from error
    if answer.get("error") is not False:
        why = f"it cannot be parsed ({answer.get('error_message', 'no reason given')})"
        raise QueryRefused(why=_NOT_A_SELECT if answer.get("error_type") == _UNSUPPORTED else why)
    statements: list[_Node] = answer.get("statements", [])
    if len(statements) != 1:
        number = "several statements" if statements else "no statement"
        raise QueryRefused(why=f"a query is exactly one SELECT, and this is {number}")
    return statements[0]


def _fold(name: str) -> str:
    """Lower the ASCII letters, as DuckDB does to compare names."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


class _Walk:
    """Visits every node of a tree. `ctes` are the CTEs that are visible at a node."""

    def __init__(self, relations: _Names) -> None:
        self.relations = relations
        self.read: set[str] = set()

    def visit(self, value: object, ctes: _Names) -> None:
        if isinstance(value, list):
            for item in value:
                self.visit(item, ctes)
        if not isinstance(value, dict):
            return
        node: _Node = value
        kind = node.get("type")
        if "class" in node:
            self._expression(node)
        elif isinstance(kind, str):
            self._structure(node, kind, ctes)
        for entry in node["cte_map"].get("map", []) if "cte_map" in node else ():
            # The node's own CTEs: each sees those before it and not itself.
            self.visit(entry["value"], ctes)
            ctes |= {_fold(entry["key"])}
        for key, child in node.items():
            if key == "cte_map" or (kind == "TABLE_FUNCTION" and key == "function"):
                continue
            # The first half of a recursive CTE does not see the CTE: there its name is a table's.
            recursive = kind == "RECURSIVE_CTE_NODE" and key == "right"
            self.visit(child, ctes | {_fold(node["cte_name"])} if recursive else ctes)
        if kind == "TABLE_FUNCTION":
            self.visit(node["function"].get("arguments"), ctes)

    def _structure(self, node: _Node, kind: str, ctes: _Names) -> None:
        if kind not in _STRUCTURE:
            raise QueryRefused(why=f"it contains a part that is not supported ({kind})")
        if kind == "BASE_TABLE":
            self._table(node, ctes)
        elif kind == "TABLE_FUNCTION":
            # Its own check: more functions may stand in an expression than in FROM.
            call = node["function"]
            if call.get("class") != "FUNCTION" or _function(call) not in _TABLE_FUNCTIONS:
                name = ".".join(_path(call))
                raise QueryRefused(why=f"the table function {name} may not be used")
        elif kind == "SHOW_REF":
            self._show(node)
        elif kind == "PIVOT" and any(pivot.get("pivot_enum") for pivot in node.get("pivots", [])):
            raise QueryRefused(why="PIVOT over a type is not supported; name the values")

    def _table(self, node: _Node, ctes: _Names) -> None:
        path = _path(node)
        if len(path) != 1 or path[0] != node.get("table_name"):
            raise QueryRefused(why=f"{'.'.join(path)} names a schema; write the view's name alone")
        if node.get("at_clause"):
            raise QueryRefused(why="AT is not supported; ask for an earlier state with --as-of")
        if _fold(path[0]) not in self.relations | ctes:
            views = ", ".join(sorted(self.relations))
            raise QueryRefused(why=f"there is no view {path[0]}; the views are {views}")
        self.read.add(_fold(path[0]))

    def _show(self, node: _Node) -> None:
        kind, path = node.get("show_type"), _path(node)
        if kind in {"DESCRIBE", "SUMMARY"} and node.get("query") and not path:
            return
        if kind == "SHOW" and len(path) == 1 and _fold(path[0]) in self.relations:
            self.read.add(_fold(path[0]))
        elif kind == "SHOW_SPECIAL" and path == ['"tables"']:
            self.read |= self.relations
        else:
            why = "of SHOW and DESCRIBE only SHOW TABLES and DESCRIBE view may be used"
            raise QueryRefused(why=why)

    def _expression(self, node: _Node) -> None:
        kind = node["class"]
        if kind not in _EXPRESSIONS:
            hint = "a query takes no parameters" if kind == "PARAMETER" else "not supported"
            raise QueryRefused(why=f"it contains an expression of the class {kind}: {hint}")
        if kind in {"FUNCTION", "WINDOW"}:
            self._call(node)
        if kind == "TYPE":
            if len(_path(node)) != 1:
                raise QueryRefused(why=f"the type {'.'.join(_path(node))} names a schema")
            if _fold(_path(node)[0]) not in _TYPES:
                raise QueryRefused(why=f"the type {_path(node)[0]} may not be used")
            if _type_depth(node) > TYPE_DEPTH_MAX:
                raise QueryRefused(why=f"a type is nested more than {TYPE_DEPTH_MAX} deep")

    def _call(self, node: _Node) -> None:
        name = _function(node)
        if name not in _FUNCTIONS:
            raise QueryRefused(why=f"the function {'.'.join(_path(node))} may not be used")
        # Written as a function an operator skips the check of what it gets: "="({'a': 1}, 1.5) ends
        # the process.
        if not (node.get("is_operator") or name.isidentifier()):
            raise QueryRefused(why=f"{name} is an operator; write it between its operands")
        if name in _BY_STRUCTURE and not _is_flat(node["arguments"][1:]):
            why = f"the structure for {name} is a text, nested at most {TYPE_DEPTH_MAX} deep"
            raise QueryRefused(why=why)


def _path(node: _Node) -> list[str]:
    path: list[str] = node["qualified_name"]["path"] if "qualified_name" in node else []
    if len(path) != 1:
        return path
    # Older fields give the catalogue and the schema apart.
    qualifiers = (node.get(key) for key in ("catalog_name", "schema_name", "catalog", "schema"))
    return [*filter(None, qualifiers), *path]


def _type_depth(node: _Node) -> int:
    return 1 + max((_type_depth(child) for child in node.get("children", [])), default=0)


def _is_flat(arguments: list[_Node]) -> bool:
    for argument in arguments:
        literal = argument.get("expression", argument).get("literal") or {}
        depths = accumulate((c in "[{") - (c in "]}") for c in literal.get("text", ""))
        if literal.get("kind") != "STRING" or max(depths, default=0) > TYPE_DEPTH_MAX:
            return False
    return True


def _function(node: _Node) -> str:
    path = _path(node)
    return _fold(path[0]) if len(path) == 1 and path[0] == node.get("function_name") else ""
