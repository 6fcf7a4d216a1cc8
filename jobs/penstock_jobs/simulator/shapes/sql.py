"""The shapes of SQL queries and migrations."""

from penstock_jobs.simulator.grammar import lines, shapes
from penstock_jobs.simulator.shapes.code_words import CODE_WORDS

SQL = {
    **CODE_WORDS,
    "head": shapes("""
-- <doc>.
-- <doc2>.
---
-- <doc>.
set lock_timeout = '<num>s';
---
begin;
-- <note>
"""),
    "open": shapes("""
with <name> as (
    select <key>_id, max(<word>) as <name2>
    from <table>
    group by <key>_id
)
select <name>.<key>_id
---
create or replace view <name>_<key> as
select t.<key>_id
---
-- <doc>.
insert into <table> (<key>_id, <name>, <word>)
select t.<key>_id
---
select distinct on (t.<key>_id) t.<key>_id
"""),
    "expr": lines("""
t.<name>
t.<key>
t.<key> + <num>
coalesce(t.<name>, <num>)
'<qualifier>'
lower(t.<name>)
t.<name>::text
<num>
abs(t.<key> - t.<word>)
<func>(t.<name>)
nullif(t.<name>, '<key>')
t.<name> || '-<word>'
greatest(t.<key>, t.<name>)
"""),
    "step": shapes("""
     , coalesce(<expr>, <num>) as <name2>
---
     , count(*) filter (where t.<key> = '<qualifier>') as <name>
---
     , sum(<expr> * <num>) over (partition by t.<key>_id order by t.<word>) as <name2>
---
     , case when t.<name> > <expr> then <expr2> else <expr3> end as <word>
---
     , <func>(<expr>, <expr2>) -- <note>
---
     , date_trunc('<word>', t.<name>_at) as <key>_day
---
     , (select max(i.<key>) from <table> i where i.<word>_id = t.<word>_id) as <name>
---
     , lag(t.<name>) over (order by t.<key>, t.<word>) as <name2>
---
     , <expr> / nullif(<expr2>, 0) as <name>
---
     , round(avg(<expr>), 2) as <name>_<word>
---
     , <expr>
     , t.<name>
---
     , array_agg(t.<key> order by t.<word>_at desc) as <name>
---
     , t.payload ->> '<key>' as <name>
"""),
    "close": shapes("""
from <table> t
join <table2> j on j.<key>_id = t.<key>_id and j.<word> <> '<qualifier>'
where t.<name> between <num> and <num2>
order by t.<key2> desc;

---
from <table> t
left join <table2> using (<key>_id)
where not exists (select 1 from <table3> x where x.<word>_id = t.<word>_id)
limit <num>;

---
from <table> t
where t.<name>_at > now() - interval '<num> days'
  and t.<key> in ('<qualifier>', '<qualifier2>')
group by 1, 2
having count(*) > <num2>;

"""),
    "record": shapes("""
create table if not exists <table> (
    <key>_id bigint generated always as identity primary key,
    <name> text not null check (length(<name>) < <num>),
    <word> timestamptz not null default now(),
    <name2> numeric(12, 2)
);

---
create index concurrently if not exists ix_<table>_<key> on <table> (<key>_id, <name>)
    where <word> = '<qualifier>';

---
alter table <table> add column <name> bigint default <num>;
update <table> set <name> = <key>_id + <num2> where <word> is null;

"""),
}
