-- How the sessions of one session's chain ended, by the definition that computed it last, or by
-- the named version.
-- Grain:  session_id.
-- Order:  first_ts.
with current as (
    select * from outcomes where superseded_at is null
),
own as (
    select chain, definition_version
    from current
    where session_id = getvariable('session')
      and getvariable('version') in ('', definition_version)
    order by computed_at desc, definition_version
    limit 1
)
select session_id, chain, outcome, reason, value, checkpoint, definition, definition_version,
       computed_at
from current
join own using (chain, definition_version)
order by first_ts, session_id
