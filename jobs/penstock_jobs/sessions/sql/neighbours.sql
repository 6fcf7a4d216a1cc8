-- The sessions beside one in a list: the next that is newer, and the next that is older.
-- Grain:  side.
with own as (
    select session_id, max(last_ts) as last_ts
    from session_parts
    where session_id = getvariable('session')
    group by session_id
),
listed as materialized (
    {listed}
)
(select 'newer' as side, listed.session_id
 from listed, own
 where (listed.last_ts, listed.session_id) > (own.last_ts, own.session_id)
 order by listed.last_ts, listed.session_id
 limit 1)
union all
(select 'older' as side, listed.session_id
 from listed, own
 where (listed.last_ts, listed.session_id) < (own.last_ts, own.session_id)
 order by listed.last_ts desc, listed.session_id desc
 limit 1)
