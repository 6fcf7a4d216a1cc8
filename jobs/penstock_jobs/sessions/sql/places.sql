-- Sessions in the order of a list, by nothing but when they were last heard of: summaries of these
-- alone are put together then.
-- Grain:  session_id.
select session_id
from {source}
where {conditions}
order by last_ts desc, session_id desc
limit cast(getvariable('rows_max') as bigint)
