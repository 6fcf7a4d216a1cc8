"""What a query may say. Each refused text is a way around the guard that someone tried."""

from collections.abc import Iterator

import duckdb
import pytest

from penstock.lake import QueryRefused
from penstock.lake.query.guard import SQL_LENGTH_MAX, check_query
from tests.support.lake.sql_fuzz import FAULTS, listed_faults

VIEWS = frozenset({"events", "sessions", "edits"})


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = duckdb.connect(config={"threads": "1"})
    opened.execute("CREATE TABLE secret AS SELECT 42 AS x")
    opened.execute("CREATE TABLE event_rows AS SELECT 's' AS session_id, 1 AS x, [1, 2] AS l")
    opened.execute("CREATE MACRO leak() AS TABLE FROM secret")
    opened.execute("CREATE MACRO scalar_leak() AS (SELECT x FROM secret)")
    for view in sorted(VIEWS):
        opened.execute(f"CREATE VIEW {view} AS FROM event_rows")
    yield opened
    opened.close()


ACCEPTED = (
    """
    select x = 1, x != 1, x < 1, x <= 1, x > 1, x >= 1, x is distinct from 1 from events
    select x + 1, -x, @ x, ~x, x ** 2, x // 2, x % 2, 5 !, x & 1, x << 1 from events
    select 'a' || 'b', 'a' ^@ 'b', l && [1], l @> [1], [1] <@ l, [1] <-> [2] from events
    select 'a' like 'b', 'a' not like 'b', 'a' ilike 'b', 'a' glob 'b', 'a' ~ 'b', 'a' !~ 'b'
    select 'a' not ilike 'b', 'a' similar to 'b', 'a' not similar to 'b', 'a' like 'b' escape 'c'
    select 1 = any ([1]), 1 <> all ([2]), 1 in (1, 2), 1 between 0 and 2 from events
    select from_json('{}', '{"a": ["INTEGER"]}'), json_transform('[]', '["INTEGER"]')
    select null::integer[][][], null::struct(a integer[], b map(integer, varchar))
    select * from events ¦ SELECT 1
    select x from events order by x desc, session_id asc nulls last, 1 limit 5 offset 2 ¦ select 1;
    select ';' -- ; drop table events ¦ /* ; */ from events ¦ from events
    from events select x where x > 1 order by all limit 10 offset 1 ¦ table events
    values (1), (2) ¦ select "X" from "Events" ¦ select * from EVENTS
    with a as (from events) select * from a
    with a as (from events), b as (from a) select * from b join a using (x)
    with a as materialized (select 1 as x) from a
    with events as (select x from events) select * from events
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) select * from n
    with recursive n(i) as (select 1 union select i + 1 from N where i < 5) from n, events
    select * from (select * from events) where x in (select x from sessions)
    select (select max(x) from edits e where e.x = events.x) from events
    select * from events e, lateral (select e.x + 1 as y)
    select * from events asof join sessions on events.x >= sessions.x
    select * from events positional join sessions
    select * from events semi join sessions using (x)
    select * from events anti join sessions using (x)
    select * from events natural left join sessions ¦ select * from events using sample 10 rows
    select * from events tablesample 10%
    select x from events union all by name select x from sessions except select 3
    select * from range(3) ¦ select * from generate_series(1, 3) with ordinality
    select * from events, unnest(l) as u(y) ¦ from range(3) t(i), generate_series(1, t.i)
    select unnest(l) from events ¦ select * from json_each('{"a": 1}')
    select * from json_tree('{"a": 1}') ¦ select columns('x|l') from events
    select columns(lambda c: c like 'x') from events
    select * exclude (l) replace (x + 1 as x) from events
    select list_transform(l, lambda y: y + 1), [y * 2 for y in l if y > 1] from events
    from events qualify rank() over (order by x) = 1
    select sum(x) filter (where x > 1), count(*), count(distinct x) from events
    select x, count(*) from events group by grouping sets ((x), ()) having count(*) > 0
    select grouping(x) from events group by cube (x)
    select percentile_cont(0.5) within group (order by x) from events
    select * from events pivot (count(*) for x in (1, 2)) ¦ unpivot (select 1 as a, 2 as b) on a, b
    select distinct on (x) * from events
    select case when x = 1 then 'a' end, x between 1 and 2, x is null, try(1 / x) from events
    select x::double, try_cast('a' as integer), cast(l as integer[]), {'a': x}.a from events
    select date_trunc('hour', now()), interval 1 day, current_date, timestamptz '2026-11-21'
    select '{"a": 1}' ->> 'a', '{"a": 1}' -> 'a', json_extract_string('{}', '$.a')
    select 'a' collate nocase, 'a' ilike 'A', 'a' similar to 'a', regexp_matches('a', 'b')
    select extract(year from date '2026-01-01'), 'a'.upper(), x ** 2, -x, not true from events
    select if(x = 1, 1, 2), coalesce(x, 1), ifnull(x, 2), nullif(x, 1) from events
    describe events ¦ describe select x from events ¦ show events ¦ summarize events ¦ show tables
    select * from (describe events) ¦ select events from events ¦ select #1 from events
    select md5('a'), random() < 2, uuid() is not null
""".strip()
    .replace("\n", " ¦ ")
    .split(" ¦ ")
)
ACCEPTED += [
    "select row_number() over (partition by x order by x), lag(x) over w from events "
    "window w as (order by x)"
]


@pytest.mark.parametrize("sql", ACCEPTED)
def test_one_select_over_the_views_runs(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    check_query(connection, sql, VIEWS)
    connection.sql(sql).to_arrow_table()


#: Not one SELECT.
STATEMENTS = """
    selec 1 ¦ insert into events values (1) ¦ update events set x = 1 ¦ delete from events
    merge into events using secret on true when matched then delete ¦ create table a as select 1
    create or replace view events as from secret ¦ create macro f() as 1 ¦ drop view events
    alter table secret rename to events ¦ truncate secret ¦ copy (select 1) to '/tmp/x'
    copy secret from '/tmp/x' ¦ export database '/tmp/x' ¦ import database '/tmp/x'
    attach '/tmp/x' as y ¦ detach memory ¦ use memory ¦ install httpfs ¦ load httpfs
    set threads = 1 ¦ reset threads ¦ set variable v = 1 ¦ pragma version
    pragma table_info('secret') ¦ call pragma_version() ¦ checkpoint ¦ vacuum ¦ analyze ¦ begin
    commit ¦ prepare p as select 1 ¦ execute p ¦ deallocate p ¦ explain select 1
    explain analyze from events ¦ pivot events on x using count(*)
    comment on table secret is 'x' ¦ with a as (insert into secret values (1) returning *) from a
    with a as (delete from secret returning *) from a
    with a as (update secret set x = 1 returning *) select * from a
"""
#: Relations that were not named.
RELATIONS = """
    select * from secret ¦ select * from "SECRET" ¦ select * from 'secret' ¦ from event_rows
    table secret ¦ select (from secret) ¦ select exists (from secret)
    select x in (select x from secret) from events
    select * from events where x = any(select x from secret)
    select x from events order by (select max(x) from secret)
    select x from events limit (select max(x) from secret)
    select x from events group by (select max(x) from secret), x
    select x from events having (select max(x) from secret) > 1
    select x from events qualify (select max(x) from secret) > row_number() over ()
    select sum(x) filter (where x in (from secret)) from events
    select sum(x order by (select x from secret)) from events
    select sum(x) over (order by (select x from secret)) from events
    select sum(x) over (order by x rows (select x from secret) preceding) from events
    select case when true then (select x from secret) end ¦ select {'a': (select x from secret)}
    select [y for y in (select list(x) from secret)]
    select * replace ((select x from secret) as x) from events
    select distinct on ((select x from secret)) x from events
    select cast((select x from secret) as varchar) ¦ values ((select x from secret))
    select * from events, secret ¦ select * from events join secret on true
    select * from events positional join secret
    select * from events asof join secret on events.x >= secret.x
    select * from events semi join secret using (x)
    select * from events join sessions on events.x = (select x from secret)
    select * from events, lateral (from secret)
    select * from events, lateral (select * from secret s where s.x > events.x)
    select * from (values (1)) v, lateral (from secret)
    select x from events union select x from secret
    select x from events except (select x from events intersect select x from secret)
    select * from secret pivot (count(*) for x in (1)) ¦ unpivot secret on x
    select * from secret using sample 1 ¦ select columns(*) from secret ¦ describe secret
    show secret ¦ summarize secret ¦ describe select * from secret
    select * from (describe secret) ¦ select * from (summarize secret)
"""
#: A CTE's name is its own only where it can be seen.
CTES = """
    with a as (from secret) from a ¦ with events as (from secret) from events
    with secret as (from secret) from secret
    select * from secret, (with secret as (select 1) from secret)
    select * from (with secret as (select 1) from secret), secret
    select (with secret as (select 1 as x) select x from secret) from secret
    with b as (from secret), secret as (select 1 as x) from b
    with recursive secret(x) as (from secret) from secret
    with recursive r(x) as (select x from secret union all select x from r) from r
    with recursive r(i) as (select 1 union all select secret.x from r, secret) from r
    with recursive r(i) using key (i) as (select 1 union select i + 1 from recurring.r) from r
"""
#: Behind FROM: qualified names, the catalogue, files, the network, variables, table functions.
PLACES = """
    main.secret memory.main.secret main.events "memory"."main"."events" temp.events
    information_schema.tables pg_catalog.pg_class pg_class pg_tables sqlite_master sqlite_schema
    duckdb_tables duckdb_views duckdb_settings() duckdb_secrets() duckdb_functions()
    duckdb_variables() duckdb_logs() duckdb_temporary_files() pragma_table_info('secret')
    pragma_database_list 'x.parquet' "x.parquet" '/etc/passwd' 's3://bucket/x.parquet'
    'https://example.org/x.csv' VIEWS ACCEPTED
    read_parquet('x.parquet') READ_PARQUET('x.parquet') "read_parquet"('x.parquet')
    main.read_parquet('x.parquet') system.main.read_csv('x') main.range(3) read_csv('x')
    read_csv_auto('x') read_json('x') read_text('/etc/passwd') read_blob('/etc/passwd')
    read_duckdb('x') parquet_metadata('x') parquet_schema('x') sniff_csv('x') glob('*')
    query_table('secret') query_table(['secret']) json_execute_serialized_sql('{}')
    histogram('secret','x') histogram_values('secret','x') seq_scan('secret')
    arrow_scan(1,2,3) pandas_scan(1) python_map_function(1) which_secret('s3://x','s3')
    enable_logging() checkpoint() force_checkpoint() leak() test_all_types()
    range(getvariable('x')) json_each(current_setting('threads'))
    \uff45\uff56\uff45\uff4e\uff54\uff53 \u0435vents e\u200bvents event\u017f
"""
#: Functions that touch state.
FUNCTIONS = """
    getvariable('x') GetVariable('x') "getvariable"('x') 'x'.getvariable() main.abs(1)
    system.main.getvariable('x') current_setting('threads') getenv('HOME') read_text('/etc/passwd')
    nextval('s') currval('s') setval('s',1) setseed(0.5) sleep_ms(1000) pg_sleep(1) write_log('x')
    scalar_leak() current_query() current_database() current_schemas(true) txid_current() version()
    in_search_path('main','main') json_serialize_plan('1') json_deserialize_sql('{}')
    json_serialize_sql('1') pg_get_viewdef(1) obj_description(1,'x') st_astext(null)
    __internal_compress_string_ubigint('x') no_such_function(1) 1::main.integer \u212aurtosis(1)
"""
REFUSED = [
    "",
    "   ",
    ";",
    "-- nothing",
    "select 1; select 2",
    "select 1; drop table events",
    "select 1\0; select * from secret",
    *(STATEMENTS + RELATIONS + CTES).strip().replace("\n", " ¦ ").split(" ¦ "),
    "with recursive secret(x) as (select x from secret union all select x from secret) from secret",
    "with recursive r(x) as ((with secret as (select 5 as x) from secret) union all "
    "select x + 1 from r where x < 6) from r, secret",
    *(f"from {place}" for place in PLACES.split()),
    *(f"select {call}" for call in FUNCTIONS.split()),
    # Operators called as functions, and types without a bottom.
    *(
        f"select \"{name}\"({{'a': 1}}, 1.5)"
        for name in ("=", "!=", "<", "<=", ">", ">=", "+", "||")
    ),
    'select "<>"(1, 2)',
    'select * from events where "="(l, 1.5)',
    "select null::integer" + "[]" * 40,
    "select cast(null as " + "struct(a " * 40 + "integer" + ")" * 40 + ")",
    "select json_transform('[]', '" + "[" * 40 + '"INTEGER"' + "]" * 40 + "')",
    "select from_json('{}', repeat('[', 30000))",
    "select from_json_strict('{}', x) from events",
    # Types that are not known, and parameters.
    "select 1::bignum",
    "select try_cast('1' as geometry)",
    'select null::"no such type"',
    "select null::struct(a map(integer, bignum)[])",
    "select ?",
    "select $1",
    "select $name",
    "select * from range($1)",
    # The catalogue and functions, elsewhere.
    "show databases",
    "show all tables",
    "show tables from main",
    "describe",
    "show",
    "with a as (select 1) from main.a",
    "describe 'x.parquet'",
    "summarize 'x.parquet'",
    "from query('from secret')",
    "from summary((from secret))",
    "select * from events, read_text(events.session_id)",
    "select * from events, lateral (from read_text(events.session_id))",
    "from unnest((select list(x) from secret))",
    "from range((select max(x) from secret))",
    "select stats(x) from events",
    "select list_transform([1], lambda y: getvariable('x'))",
    "select columns(lambda c: c = getvariable('x')) from events",
    "select x from events order by getvariable('x')",
    "select sum(getvariable('x')) over () from events",
    # Time travel is the platform's, not DuckDB's.
    "select * from events at (version => 1)",
    "select * from events at (timestamp => (select now()))",
    # The text is bound and never pasted, whatever its size.
    "x'); drop table secret; select ('",
    "select " + "(" * 5_000 + "1" + ")" * 5_000,
    "select " + "-(" * 900 + "1" + ")" * 900,
    "select 1" + " + 1" * 20_000,
    "select '" + "x" * SQL_LENGTH_MAX + "'",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_everything_else_is_refused(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(QueryRefused):
        check_query(connection, sql, VIEWS)
    assert connection.sql("select x from secret").fetchall() == [(42,)]


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("explain select 1", "EXPLAIN"),
        ("pivot events on x using count(*)", "FILTER"),
        ("from secret", "events, sessions"),
        ("from main.events", "alone"),
        ("select 1; select 2", "several"),
        ("select getvariable('x')", "getvariable"),
        ("selec", "parsed"),
        ("select ?", "parameters"),
    ],
)
def test_a_refusal_says_why(connection: duckdb.DuckDBPyConnection, sql: str, word: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        check_query(connection, sql, VIEWS)
    assert word in str(refused.value)


@pytest.mark.parametrize("sql", listed_faults())
def test_what_ends_the_engine_is_refused(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(QueryRefused):
        check_query(connection, sql, frozenset({"t"}))


def test_the_list_of_faults_is_of_the_engine_that_is_used() -> None:
    """With another one: `python -m tests.support.lake.sql_fuzz --write`, and docs/decisions.md."""
    assert f"DuckDB {duckdb.__version__}," in FAULTS.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "call", "more_than", "harmless"),
    [
        (
            "= 'scalar' and stability <> 'CONSISTENT'", "select", 20,
            "current_date error gen_random_uuid get_current_time get_current_timestamp now random"
            " today transaction_timestamp uuid uuidv4 uuidv7",
        ),
        (
            "in ('table', 'table_macro', 'pragma')", "from", 100,
            "generate_series json_each json_tree range repeat unnest",
        ),
    ],
    ids=["stateful", "table"],
)  # fmt: skip
def test_every_other_function_of_this_duckdb_is_refused(
    connection: duckdb.DuckDBPyConnection, kind: str, call: str, more_than: int, harmless: str
) -> None:
    """A DuckDB upgrade that adds one must not pass unseen."""
    names = f"select distinct function_name from duckdb_functions() where function_type {kind}"
    rows = connection.sql(names).fetchall()
    assert len(rows) > more_than
    for name in {name for (name,) in rows}.difference(harmless.split()):
        with pytest.raises(QueryRefused):
            check_query(connection, f'{call} "{name}"()', VIEWS)
