-- The sessions beside one in a list: the next that is newer, and the next that is older.
-- Grain:  side.
with own as (
    select max(last_ts) as last_ts from session_parts where session_id = getvariable('session')
),
listed as materialized (
    select session_id, last_ts from {source} where {conditions}
)
(select 'newer' as side, session_id
 from listed
 where last_ts > (from own)
    or (last_ts = (from own) and session_id > getvariable('session'))
 order by last_ts, session_id
 limit 1)
union all
(select 'older' as side, session_id
 from listed
 where last_ts < (from own)
    or (last_ts = (from own) and session_id < getvariable('session'))
 order by last_ts desc, session_id desc
 limit 1)
