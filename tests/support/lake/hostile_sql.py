"""Five hundred ways to hurt a service with SQL: to end its process, to hold it up, to fill its
memory or its disk, and to read what is not one's own. Made from a few shapes, so that each idea
comes with its neighbours."""

from collections.abc import Iterator, Sequence

import duckdb

from penstock.lake import QueryRefused
from penstock.lake.query.guard import check_query

_SMALL = [
    "NULL", "1", "1.5", "'a'", "[1]", "{'a': 1}", "MAP {'a': 1}", "'{}'::JSON",
    "DATE '2020-01-01'",
]  # fmt: skip
_COMPARISONS = ["=", "!=", "<", ">", "<=", ">=", "<>", "<=>"]
_LONG = "repeat('x', 100000000)"
_FILES = [
    "/etc/passwd", "/proc/self/environ", "/proc/self/mem", "/dev/zero", "s3://bucket/x.parquet",
    "http://127.0.0.1:8080/readyz", "https://example.com/x.csv", "../../penstock.db", "**/*",
    "file:///etc/passwd", "glob:*", "\\\\server\\share",
]  # fmt: skip


def hostile_statements() -> list[str]:
    return list(dict.fromkeys(text for group in _GROUPS for text in group()))


def allowed_statements(statements: Sequence[str], views: frozenset[str]) -> list[str]:
    """Those that the guard lets through. Its parser may end the process."""
    allowed = []
    with duckdb.connect(config={"threads": 1}) as connection:
        for sql in statements:
            try:
                check_query(connection, sql, views)
            except (QueryRefused, UnicodeEncodeError):
                continue
            allowed.append(sql)
    return allowed


def _engine_faults() -> Iterator[str]:
    """Functions that the engine's own operators call, called by hand with what they never get."""
    for name in _COMPARISONS:
        for left, right in zip(_SMALL, _SMALL[1:] + _SMALL[:1], strict=True):
            yield f'SELECT "{name}"({left}, {right})'
        yield f"SELECT \"{name}\"({{'a': 1}}, 1.5)"
        yield f'SELECT "{name}"(payload, [1]) FROM events'
    for name in ("~~", "||", "+", "-", "*", "//", "&&", "@>", "^@", "!~~", "->", "->>"):
        yield f"SELECT \"{name}\"({{'a': 1}}, 1.5)"
    for name in ("struct_extract_at", "array_extract", "element_at", "list_zip", "json_transform"):
        yield f"SELECT {name}(ROW(1, 2), 99)"
        yield f"SELECT {name}({{'a': 1}}, -9223372036854775808)"


def _depth() -> Iterator[str]:
    for depth in (100, 10_000, 60_000):
        yield "SELECT " + "(" * depth + "1" + ")" * depth
        yield "SELECT " + "-" * 1 + " -" * depth + "1"
        yield "SELECT " + "NOT " * depth + "true"
        yield "SELECT 1" + " + 1" * depth
        yield "SELECT " + "[" * depth + "1" + "]" * depth
        yield "SELECT '" + "[" * depth + "1" + "]" * depth + "'::JSON"
        yield "SELECT json_extract('" + '{"a":' * depth + "1" + "}" * depth + "', '$..a')"
        yield "SELECT json_structure('" + "[" * depth + "]" * depth + "')"
        yield "SELECT json_transform('[]', '" + "[" * depth + '"INTEGER"' + "]" * depth + "')"
        yield "SELECT from_json('{}', '" + '{"a":' * depth + '"INTEGER"' + "}" * depth + "')"
        yield "SELECT NULL::INTEGER" + "[]" * depth
        yield "SELECT CAST(NULL AS " + "STRUCT(a " * depth + "INTEGER" + ")" * depth + ")"
        yield "SELECT CASE WHEN true THEN " * depth + "1" + " END" * depth
        yield "SELECT * FROM (" * depth + "SELECT 1" + ")" * depth
        yield "SELECT 1" + " UNION ALL SELECT 1" * depth
        yield (
            "WITH "
            + ", ".join(f"c{n} AS (SELECT 1)" for n in range(min(depth, 9_000)))
            + " SELECT 1"
        )
        yield "SELECT 1 IN (" + ", ".join(map(str, range(depth))) + ")"
        yield "SELECT " + "upper(" * depth + "'a'" + ")" * depth
        yield "SELECT x -> " * 1 + "y -> ".join("" for _ in range(depth)) + "1"
        yield "SELECT '" + "(" * depth + "' ~ '" + "(" * depth + "'"


def _memory() -> Iterator[str]:
    for power in (8, 10, 18):
        count = 10**power
        yield f"SELECT length(repeat('x', {count}))"
        yield f"SELECT length(lpad('', {count}, 'x'))"
        yield f"SELECT length(rpad('x', {count}, 'é'))"
        yield f"SELECT len(range({count}))"
        yield f"SELECT len(generate_series(1, {count}))"
        yield f"SELECT list(range) FROM range({count})"
        yield f"SELECT string_agg(range::VARCHAR, ',') FROM range({count})"
        yield f"SELECT count(DISTINCT range) FROM range({count})"
        yield f"SELECT * FROM range({count}) ORDER BY hash(range) LIMIT 1 OFFSET {count - 1}"
        yield f"SELECT range, count(*) FROM range({count}) GROUP BY ALL"
        yield f"SELECT len(list_resize([1], {count}))"
        yield f"SELECT len(array_resize(['x'], {count}, 'y'))"
        yield f"SELECT len(string_split(repeat('a,', {count}), ','))"
        yield f"SELECT histogram(range) FROM range({count})"
        yield f"SELECT quantile_cont(range, 0.5) FROM range({count})"
        yield f"SELECT bitstring('1', {count})"
        yield f"SELECT json_group_array(range) FROM range({count})"
        yield f"SELECT map(range({count}), range({count}))"
        yield f"SELECT unnest(range({count}))"
        yield f"SELECT row_number() OVER (ORDER BY range) FROM range({count}) QUALIFY false"
        yield f"SELECT printf('%{count}d', 1)"
        yield f"SELECT format('{{:{count}}}', 1)"
        yield f"SELECT translate(repeat('a', {count}), 'a', 'bb')"
        yield f"SELECT replace(repeat('a', {count}), 'a', repeat('b', 1000))"


def _time() -> Iterator[str]:
    for name in ("levenshtein", "damerau_levenshtein", "jaccard", "jaro_similarity", "hamming",
                 "jaro_winkler_similarity", "editdist3", "mismatches"):  # fmt: skip
        yield f"SELECT {name}(repeat('ab', 200000), repeat('ba', 200000))"
        yield f"SELECT {name}({_LONG}, {_LONG})"
    for pattern in ("(a+)+$", "(a|a)*$", "(.*)*x", "(a?){50}a{50}", "(x+x+)+y", ".*.*.*=.*"):
        yield f"SELECT regexp_matches(repeat('a', 5000000), '{pattern}')"
        yield f"SELECT regexp_replace(repeat('a', 5000000), '{pattern}', 'b', 'g')"
        yield f"SELECT regexp_extract_all(repeat('a', 5000000), '{pattern}')"
        yield f"SELECT repeat('a', 5000000) SIMILAR TO '{pattern}'"
    for shape in ("%a%a%a%a%a%a%a%b", "_%_%_%_%_%_%b"):
        yield f"SELECT repeat('a', 5000000) LIKE '{shape}'"
        yield f"SELECT repeat('a', 500000) GLOB '{shape.replace('%', '*').replace('_', '?')}'"
    for depth in (2, 3, 4):
        yield "SELECT count(*) FROM " + ", ".join(f"range(100000) r{n}" for n in range(depth))
        yield "SELECT count(*) FROM " + ", ".join(f"events e{n}" for n in range(depth + 6))
        yield "SELECT sum(sin(a.range) * cos(b.range)) FROM range(1000000) a, range(1000000) b" + (
            ", range(9) c" * depth
        )
    yield "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
    yield "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n * 2 FROM r) SELECT count(*) FROM r"
    yield "WITH RECURSIVE r(s) AS (SELECT 'a' UNION ALL SELECT s || s FROM r) SELECT max(s) FROM r"
    yield "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r, range(9)) FROM r"
    for digits in (30, 100, 1000):
        yield f"SELECT factorial({digits}), gcd({digits}, 7), 2 ** {digits}"
        yield f"SELECT list_reduce(range({digits}00000), lambda x, y: x + y)"
        yield f"SELECT list_transform(range({digits}0000), lambda x: list_sum(range(x)))"
        yield f"SELECT list_sort(list_transform(range({digits}0000), lambda x: hash(x)))"
        yield f"SELECT list_distinct(range({digits}00000))"


def _other_data() -> Iterator[str]:
    for path in _FILES:
        yield f"SELECT * FROM '{path}'"
        yield f"SELECT * FROM read_csv('{path}')"
        yield f"SELECT * FROM read_text('{path}')"
        yield f"SELECT * FROM read_blob('{path}')"
        yield f"SELECT * FROM parquet_scan(['{path}'])"
        yield f"SELECT * FROM \"read_text\"('{path}')"
        yield f"COPY (SELECT 1) TO '{path}'"
        yield f"ATTACH '{path}' AS other"
    for relation in (
        "stored_events", "fresh_events", "event_rows", "consent_changes", "main.events",
        "memory.main.events", "duckdb_tables()", "duckdb_settings()", "duckdb_secrets()",
        "information_schema.tables", "sqlite_master", "pg_catalog.pg_class", "pragma_version()",
        "duckdb_views()", "which_secret('s3://x', 's3')", "glob('/*')", "sniff_csv('/etc/passwd')",
        "parquet_metadata('/etc/passwd')", "query('SELECT 1')", "query_table('stored_events')",
        "arrow_scan(1, 2, 3)", "python_map_function()", "pandas_scan(1)", "seq_scan('events')",
    ):  # fmt: skip
        yield f"SELECT * FROM {relation}"
        yield f"SELECT * FROM (SELECT * FROM {relation})"
        yield f"WITH x AS (SELECT * FROM {relation}) SELECT count(*) FROM x"
    for expression in (
        "getvariable('tenant')", "getenv('HOME')", "current_setting('temp_directory')",
        "getvariable('stored_events_files')", "current_query()", "txid_current()", "pg_sleep(9)",
        "nextval('x')", "currval('x')", "json_execute_serialized_sql('x')", "current_database()",
        "in_search_path('x', 'y')", "add_parquet_key('a', 'b')", "read_text('/etc/passwd')",
        "write_log('x')", "system.main.getvariable('tenant')", '"getvariable"(\'tenant\')',
    ):  # fmt: skip
        yield f"SELECT {expression}"
        yield f"SELECT count(*) FROM events WHERE {expression} IS NOT NULL"
        yield f"SELECT * FROM events ORDER BY {expression}"


def _statements() -> Iterator[str]:
    for text in (
        "INSTALL httpfs", "LOAD httpfs", "PRAGMA database_list", "SET threads = 64",
        "SET enable_external_access = true", "RESET memory_limit", "CALL pragma_version()",
        "CREATE TABLE t (a INTEGER)", "CREATE MACRO m() AS 1", "DROP VIEW events", "CHECKPOINT",
        "INSERT INTO events SELECT * FROM events", "DELETE FROM events",
        "UPDATE events SET type = 1",
        "EXPLAIN ANALYZE SELECT 1", "EXPORT DATABASE 'x'", "IMPORT DATABASE 'x'", "VACUUM",
        "BEGIN", "PREPARE p AS SELECT 1", "EXECUTE p", "USE memory", "DETACH memory",
        "SHOW ALL TABLES",
        "SET VARIABLE tenant = 'other'", "CREATE SECRET s (TYPE s3)",
        "COMMENT ON VIEW events IS 'x'",
        "SUMMARIZE duckdb_settings()", "DESCRIBE SELECT * FROM read_text('/etc/passwd')",
        "SELECT 1; SELECT 2", "SELECT 1; DROP VIEW events", "", ";", "--", "/*", "SELECT $1",
        "SELECT ?", "SELECT * FROM events AT (VERSION => 1)", "FROM events TABLESAMPLE 1%",
        "PIVOT events ON type", "SELECT \x00 1", "SELECT 1 -- \x00", "SELECT '\ud800'",
        "SELECT 'é'é",
    ):  # fmt: skip
        yield text
        yield f"/**/ {text}"
    yield "SELECT '" + "x" * 199_000 + "'"
    yield "SELECT '" + "x" * 300_000 + "'"
    yield "SELECT " + ", ".join(f"{n} AS c{n}" for n in range(20_000))
    yield "SELECT 1 AS a, 2 AS a"


_GROUPS = (_engine_faults, _depth, _memory, _time, _other_data, _statements)
