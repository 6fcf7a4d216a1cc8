-- What agents reported as metrics under one name: a mean, or an amount.
-- Grain:  session_id.
-- Of each series the newest point counts. It has what the earlier ones had.
with newest as (
    select session_id,
           max_by(try_cast(json_extract_string(payload, '$.total') as double), ts) as total,
           max_by(try_cast(json_extract_string(payload, '$.count') as double), ts) as count
    from events
    where ts >= make_timestamptz($from_us)
      and type = 'x_metric'
      and json_extract_string(payload, '$.name') = $name
    group by session_id, json_extract_string(payload, '$.series')
)
select session_id, case when $is_mean then sum(total) / nullif(sum(count), 0) else sum(total) end as value
from newest
group by session_id
