-- How many sessions that were heard of since then ended how, each by the definition that computed it
-- last; their mean worth, and when that was.
-- Grain:  outcome.
select outcome, count(*) as sessions, avg(value) as worth, max(computed_at) as computed_at
from (
    select session_id, outcome, value, computed_at from outcomes
    where superseded_at is null
      and last_ts >= make_timestamptz(cast(getvariable('since_us') as bigint))
    qualify row_number() over (partition by session_id order by computed_at desc) = 1
)
group by outcome
order by outcome
