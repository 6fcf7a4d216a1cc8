-- Sessions that were heard of since then, by when they were last, in steps of so many seconds. The
-- list of sessions with the same `since` holds the same.
-- Grain:  step.
-- Order:  step.
select time_bucket(to_seconds(cast(getvariable('step_s') as bigint)), last_ts) as step,
       count(*) as sessions, sum(events) as events
from sessions
where last_ts >= make_timestamptz(cast(getvariable('since_us') as bigint))
group by step
order by step
