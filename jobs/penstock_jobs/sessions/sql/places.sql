-- Sessions in the order of a list, by nothing but when they were last heard of: summaries of these
-- alone are put together then.
-- Grain:  session_id.
select session_id
from (
    select session_id, max(last_ts) as last_ts
    from session_parts
    group by session_id
)
where {place}
order by last_ts {direction}, session_id {direction}
limit cast(getvariable('rows_max') as bigint)
