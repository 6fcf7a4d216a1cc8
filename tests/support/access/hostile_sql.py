"""Statements by which a tenant tries to read what is another's: a corpus that is the same each
time, made of ways to name a source and ways to put it into a statement."""

from collections.abc import Iterator, Mapping

VIEWS = (
    "events", "sessions", "turns", "user_messages", "model_calls", "tool_calls", "edits",
    "observations", "feedback", "rewards", "outcomes", "checkpoints", "benchmark_scores",
    "promotions", "shards", "samples", "labels",
)  # fmt: skip

#: With a view: whatever it gives, it has to be one's own.
_OVER_VIEWS = (
    "select * from {view}",
    "select * from {view} where tenant = 'acme'",
    "select * from {view} where tenant <> 'bolt' or 1 = 1",
    "select * from main.{view}",
    'select * from "{view}" t, lateral (select t) u',
    "with {view} as (select * from main.{view}) select * from {view}",
    "with recursive r as (select 1 as n union all select n + 1 from r where n < 3) "
    "select * from r, {view}",
    "select * from (select *, 'bolt' as tenant from {view}) where tenant = 'bolt'",
    "select * from {view} union all by name select * from {view}",
    "select (select string_agg(v::varchar, '|') from {view} v)",
    "select * from {view} order by all /* ; select * from segments */",
    "select count(*) filter (where v::varchar like '%acme%') as n from {view} v",
    "select * from {view} at (version => 1)",
    "from {view} select columns('.*')",
    "select * from {view} positional join (select 'acme' as tenant)",
    "describe {view}; select 1",
)

#: Sources that no tenant has.
_SOURCES = (
    "read_parquet('{segment}')",
    "parquet_scan('{segment}')",
    "read_parquet(['{segment}'])",
    "'{segment}'",
    "parquet_metadata('{segment}')",
    "parquet_schema('{segment}')",
    "parquet_kv_metadata('{segment}')",
    "read_blob('{segment}')",
    "read_text('{database}')",
    "read_csv('{database}')",
    "read_json('{data}/penstock.toml')",
    "glob('{data}/**')",
    "glob('/**')",
    "sqlite_scan('{database}', 'api_key')",
    "postgres_scan('', 'public', 'api_key')",
    "information_schema.tables",
    "information_schema.columns",
    "duckdb_tables()",
    "duckdb_views()",
    "duckdb_columns()",
    "duckdb_settings()",
    "duckdb_secrets()",
    "duckdb_databases()",
    "duckdb_functions()",
    "duckdb_temporary_files()",
    "duckdb_logs()",
    "duckdb_variables()",
    "pg_catalog.pg_tables",
    "pragma_table_info('events')",
    "pragma_storage_info('events')",
    "query('select * from events')",
    "query_table('events')",
    "api_key",
    "segment",
    "audit_entry",
    "channel_change",
    "all_events",
    "main.sqlite_master",
    "arrow_scan(0, 0, 0)",
    "system.main.events",
    "temp.events",
    "http_get('http://127.0.0.1/')",
    "read_parquet('s3://lake/*')",
    "read_parquet('http://127.0.0.1:1/x')",
)
_AROUND_SOURCES = (
    "select * from {source}",
    "select * from events where exists (select 1 from {source})",
    "with t as (from {source}) select * from t",
    "select (select max(x::varchar) from {source} x)",
    "select * from events join {source} s on true",
)
_ALONE = (
    "attach '{database}' as stolen",
    "copy events to '{data}/out.csv'",
    "copy (select 1) to '{data}/out.parquet'",
    "create table mine as select * from events",
    "create or replace view events as select 1",
    "create macro events() as table select 1",
    "install httpfs",
    "load sqlite",
    "set enable_external_access = true",
    "set search_path = 'main'",
    "set variable tenant = 'acme'",
    "reset tenant",
    "pragma database_list",
    "call duckdb_tables()",
    "export database '{data}/out'",
    "import database '{data}'",
    "detach main",
    "use temp",
    "checkpoint",
    "delete from events",
    "insert into events select * from events",
    "update events set tenant = 'bolt'",
    "drop view events",
    "prepare p as select * from events",
    "execute p",
    "explain analyze select * from events",
    "select getenv('PENSTOCK_KEY')",
    "select getvariable('tenant')",
    "select current_setting('allowed_paths')",
    "select error(string_agg(e::varchar, '|')) from events e",
    "select cast(string_agg(e::varchar, '|') as int) from events e",
    "select nextval('x')",
    "select * from events; select * from events",
    "values (1); attach ''",
    "select 1 --\n; copy events to '/tmp/x'",
    "select $tenant",
    "select $1",
    "select ?",
)


def corpus(paths: Mapping[str, str]) -> Iterator[str]:
    """`paths` has the victim's segment, the data directory and the database, as somebody knows
    them who has seen the disk."""
    for pattern in _OVER_VIEWS:
        yield from (pattern.replace("{view}", view) for view in VIEWS)
    for pattern in _AROUND_SOURCES:
        for source in _SOURCES:
            yield _named(pattern.replace("{source}", source), paths)
    yield from (_named(statement, paths) for statement in _ALONE)
    for view in VIEWS:
        for source in (
            view.upper(),
            f'"{view}"',
            f'main."{view}"',
            f"({view})",
            f"{view} e, {view}",
        ):
            yield f"select * from {source}"


def _named(statement: str, paths: Mapping[str, str]) -> str:
    for name, path in paths.items():
        statement = statement.replace(f"{{{name}}}", path)
    return statement
