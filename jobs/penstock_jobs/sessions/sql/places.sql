-- Sessions in the order of a list, by nothing but the number that they are sorted by, and when they
-- were last heard of: summaries of these alone are put together then.
-- Grain:  session_id.
-- Order:  rank, last_ts, session_id, all descending.
select session_id, rank
from (select session_id, last_ts, cast({rank} as double) as rank from {source} where {conditions})
where rank is not null and {behind}
order by rank desc, last_ts desc, session_id desc
limit cast(getvariable('rows_max') as bigint)
